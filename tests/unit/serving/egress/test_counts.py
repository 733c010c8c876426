"""Squid's log, line by line, and the sums of it."""

from aworld_train.serving.egress.counts import Counts, outcome, parse_line
from aworld_train.serving.worker.egress import proxy_variables


def test_lines_are_counted_by_server_and_outcome() -> None:
    counts = Counts(("web", "odd näme"))
    lines = {
        "200 - - 100 2000 web GET 80 example.org of some more words": "ok",
        "404 - - 1 2 web GET 80 example.org": "ok",
        "403 ERR_ACCESS_DENIED address 1 2 web CONNECT 443 10.0.0.1": "refused_address",
        "403 ERR_ACCESS_DENIED host 1 2 odd=20n=C3=A4me CONNECT 443 a.org": "refused_host",
        "503 503:ERR_DNS_FAIL name 1 2 web GET 80 nowhere.org": "failed",
        "503 ERR_CONNECT_FAIL - 1 2 web GET 80 nowhere.org": "failed",
        "407 ERR_CACHE_ACCESS_DENIED - 1 2 web GET 80 a.org": "refused_credentials",
    }
    for line, expected in lines.items():
        request = parse_line(line)
        assert request is not None
        assert outcome(request) == expected, line
        counts.add(request)
    assert counts.to_json() == {
        "requests": {
            "-": {"refused_credentials": 1},
            "odd näme": {"refused_host": 1},
            "web": {"failed": 2, "ok": 2, "refused_address": 1},
        },
        "bytes": {
            "-": {"received": 2, "sent": 1},
            "odd näme": {"received": 2, "sent": 1},
            "web": {"received": 2008, "sent": 104},
        },
        "restarts": 0,
    }


def test_a_connection_that_asks_for_nothing_and_what_is_no_line_are_not_counted() -> None:
    fields = ["200", "-", "-", "1", "2", "web", "GET", "80", "a.org"]
    wrong_numbers = [" ".join([*fields[:at], "x", *fields[at + 1 :]]) for at in (0, 3, 4)]
    for line in ("0 ERR_CLIENT_GONE - 0 0 - - - -", "", "hello", *wrong_numbers):
        assert parse_line(line) is None


def test_a_name_from_nowhere_adds_no_label() -> None:
    counts = Counts(("web",))
    request = parse_line("403 ERR_ACCESS_DENIED - 1 2 invented GET 80 a.org")
    assert request is not None
    counts.add(request)
    assert set(counts.to_json()["requests"]) == {"-"}


def test_the_variables_of_a_server_are_those_that_programs_know() -> None:
    variables = proxy_variables("odd näme", "p/w", 3128)
    url = "http://odd%3D20n%3DC3%3DA4me:p%2Fw@127.0.0.1:3128"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    assert variables == {name: url for spelt in names for name in (spelt, spelt.lower())} | {
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }
