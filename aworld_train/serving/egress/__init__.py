"""The egress of an environment: a forward proxy in a container of its own, and the sockets that lead to it.

    tool server ──127.0.0.1:3128──► worker ──unix socket──► egress ──► Squid ──► the internet
                                                                        └──────► Unbound (names)

Workers have no network. Squid decides by server, host and port, and refuses every forbidden address. It resolves names
only through Unbound, which replaces forbidden addresses by one that Squid refuses: Squid resolves a name twice, when it
checks a request and when it connects, and the owner of a name could change the second answer.
"""
