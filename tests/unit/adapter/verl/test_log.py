"""The errors in VeRL's log, and in what Ray raises."""

from aworld_train.adapter.verl.log import error_line, errors_in, start_failed

TIMEOUT = (
    "Exception: The current node timed out during startup. This could happen because some of the raylet failed to "
    "startup or the GCS has become overloaded."
)


def test_a_start_that_took_too_long_is_told_from_a_later_failure() -> None:
    assert start_failed(f'Traceback (most recent call last):\n  File "node.py"\n{TIMEOUT}\n')
    assert not start_failed(f"{TIMEOUT}\nValueError: wrong\n")
    assert not start_failed("started\n")


def test_an_error_of_an_actor_that_died_is_one_line() -> None:
    class ActorDiedError(Exception): ...

    error = ActorDiedError(
        "The actor died unexpectedly before finishing this task.\n\tclass_name: A\n\tpid: 7\n"
    )
    assert error_line(error) == "ActorDiedError: The actor died unexpectedly before finishing this task."


def test_an_error_of_a_remote_call_is_its_cause() -> None:
    text = 'ray::A.f() (pid=7, ip=127.0.0.1)\n  File "a.py", line 1, in f\nValueError: too long'
    assert error_line(RuntimeError(text)) == "ValueError: too long"
    assert errors_in(text) == ["ValueError: too long"]


def test_an_error_without_a_text_is_its_type() -> None:
    assert error_line(TimeoutError()) == "TimeoutError"
