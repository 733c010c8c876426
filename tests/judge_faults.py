"""Faults of a judge, each as a script of the server.

Every text in a fault is the wrong verdict. So a fault that is taken for a verdict gives a wrong score, which tests see.
"""

import asyncio

from aiohttp import web

from tests.judge_server import ParsedRequest, Script, completion, honest, verdict_reply


def status(code: int, **headers: str) -> Script:
    """An error whose body is a verdict."""

    async def script(parsed: ParsedRequest) -> web.StreamResponse:
        body = verdict_reply(parsed, parsed.wrong).body
        return web.Response(status=code, body=body, content_type="application/json", headers=headers)

    return script


def words(text: str, finish: str = "stop") -> Script:
    """A completion with this text; RIGHT and WRONG are replaced by the verdicts."""

    async def script(parsed: ParsedRequest) -> web.StreamResponse:
        content = text.replace("RIGHT", parsed.right.upper()).replace("WRONG", parsed.wrong.upper())
        return completion(content, finish)

    return script


def body(text: str, **headers: str) -> Script:
    """A body that is no completion."""

    async def script(parsed: ParsedRequest) -> web.StreamResponse:
        return web.Response(text=text.replace("WRONG", parsed.wrong.upper()), headers=headers)

    return script


def content(value: object) -> Script:
    """A completion whose content is no text."""

    async def script(parsed: ParsedRequest) -> web.StreamResponse:
        return completion(value)

    return script


async def hangs(parsed: ParsedRequest) -> web.StreamResponse:
    """No response until the server stops."""
    await asyncio.Event().wait()
    raise AssertionError


async def drips(parsed: ParsedRequest) -> web.StreamResponse:
    """A byte now and then, for ever."""
    response = web.StreamResponse()
    await response.prepare(parsed.request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.01)


async def resets(parsed: ParsedRequest) -> web.StreamResponse:
    """The connection ends without a response."""
    assert parsed.request.transport is not None
    parsed.request.transport.abort()
    return web.Response()


async def breaks_off(parsed: ParsedRequest) -> web.StreamResponse:
    """The connection ends in the middle of a completion."""
    response = web.StreamResponse(headers={"Content-Length": "100000"})
    await response.prepare(parsed.request)
    whole = verdict_reply(parsed, parsed.wrong).body
    assert isinstance(whole, bytes)
    await response.write(whole)
    assert parsed.request.transport is not None
    parsed.request.transport.abort()
    return response


async def refuses_structure(parsed: ParsedRequest) -> web.StreamResponse:
    """A server without structured output, which is honest in plain text."""
    if parsed.structured:
        error = {"error": {"message": "'response_format.type' must be 'text'"}}
        return web.json_response(error, status=400)
    return await honest(parsed)


async def ignores_structure(parsed: ParsedRequest) -> web.StreamResponse:
    """A server that ignores the structured output format, and is honest in plain text."""
    return completion("They are " + parsed.wrong) if parsed.structured else await honest(parsed)


RETRYABLE: dict[str, Script] = {
    "500": status(500),
    "502": status(502),
    "503 with Retry-After": status(503, **{"Retry-After": "0.01"}),
    "429": status(429),
    "429 with a date": status(429, **{"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
    "429 with nonsense": status(429, **{"Retry-After": "soon"}),
    "hangs": hangs,
    "drips": drips,
    "resets": resets,
    "breaks off": breaks_off,
    "html": body("<html>VERDICT: WRONG</html>"),
    "empty body": body(""),
    "no JSON": body('{"choices": [{"message": {"content": "VERDICT: WRONG"'),
    "deep JSON": body("[" * 200_000),
    "an error with status 200": body('{"error": {"message": "VERDICT: WRONG"}}'),
    "a bare verdict": body('{"verdict": "correct"}'),
    "no choices": body('{"choices": []}'),
    "choices of nothing": body('{"choices": null}'),
    "a text": body('"VERDICT: WRONG"'),
    "no gzip": body("VERDICT: WRONG", **{"Content-Encoding": "gzip"}),
    "content is a number": content(1),
    "content is thoughts alone": content([{"type": "thinking", "thinking": "VERDICT: CORRECT"}]),
    "content is a verdict": content({"verdict": "correct"}),
    "content is nothing": content(None),
    "content is empty": content(""),
    "Not correct": words("Not correct"),
    "Not incorrect": words("Not incorrect"),
    "correct, not incorrect": words("correct, not incorrect"),
    "incorrect, not correct": words("incorrect, not correct"),
    "The answer is correct? No.": words("The answer is correct? No."),
    "a word": words("WRONG"),
    "both": words("VERDICT: RIGHT\nNo.\nVERDICT: WRONG"),
    "not and": words("VERDICT: NOT WRONG"),
    "another verdict": words('{"reason": "Hm.", "verdict": "maybe"}'),
    "verdict is a bool": words('{"reason": "Hm.", "verdict": true}'),
    "verdict is a list": words('{"reason": "Hm.", "verdict": ["correct", "incorrect"]}'),
    "verdict twice": words('{"verdict": "correct", "verdict": "incorrect"}'),
    "half a JSON": words('{"verdict": "WRONG", "reason": "Because'),
    "cut off": words("VERDICT: WRONG", "length"),
    "filtered": words("VERDICT: WRONG", "content_filter"),
    "thinks without end": words("<think>VERDICT: WRONG"),
    "nothing but thoughts": words("<think>VERDICT: WRONG</think>"),
}
"""Faults after which another attempt may succeed."""
PERMANENT: dict[str, Script] = {
    "400": status(400),
    "401": status(401),
    "403": status(403),
    "404": status(404),
    "422": status(422),
    "a redirect": status(307, Location="http://127.0.0.1:9/v1/chat/completions"),
    "too much": body("VERDICT: WRONG" + " " * (17 << 20)),
}
"""Faults after which it would not."""


def in_turn(*scripts: Script) -> Script:
    """One script per request, and the last one for all that follow."""
    remaining = list(scripts)

    async def script(parsed: ParsedRequest) -> web.StreamResponse:
        return await (remaining.pop(0) if len(remaining) > 1 else remaining[0])(parsed)

    return script
