"""The egress of an environment: a forward proxy in a container of its own, and the sockets that lead to it.

    tool server ──127.0.0.1:3128──► worker ──unix socket──► egress ──► Squid ──► the internet
                                                                        └──────► Unbound (names)

Squid decides by server, host and port, and refuses every forbidden address. Unbound replaces forbidden addresses by one
that Squid refuses, because the owner of a name could change it between Squid's check and its connection.
"""
