"""The way out of an environment: a forward proxy in a container of its own, and the sockets that lead to it.

    tool server ──127.0.0.1:3128──► worker ──unix socket──► egress ──► Squid ──► the internet
                                                                        └──────► Unbound (names)

Workers have no network. Squid decides by server, host and port, and refuses every forbidden address. It gets names
from Unbound alone, which replaces a forbidden address in an answer with one that Squid refuses: Squid looks a name up
when it checks a request and again when it connects, and the second answer is another where a name's owner wants that.
"""
