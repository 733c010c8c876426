"""Who may read: the browser that brought the one-time token of the address that the command printed."""

import hmac
import secrets


class BrowserSession:
    """A token that works once, and the cookie that it is exchanged for."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        self._redeemed = False

    def redeem(self, token: str) -> str | None:
        """The value of the cookie for the right token, the first time; None after it and for any other."""
        if self._redeemed or not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        self._redeemed = True
        return self._cookie

    def knows(self, cookie: str) -> bool:
        return self._redeemed and hmac.compare_digest(cookie.encode(), self._cookie.encode())
