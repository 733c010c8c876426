"""The errors in VeRL's log, and in what Ray raises."""

from aworld_train.adapter.verl.log import error_line, errors_in, is_transient, start_failed

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
    assert error_line(error) == "ActorDiedError: The actor died unexpectedly before finishing this task (A)."


def test_an_error_of_a_remote_call_is_its_cause() -> None:
    text = 'ray::A.f() (pid=7, ip=127.0.0.1)\n  File "a.py", line 1, in f\nValueError: too long'
    assert error_line(RuntimeError(text)) == "ValueError: too long"
    assert errors_in(text) == ["ValueError: too long"]


def test_an_actor_that_died_in_a_remote_call_is_named() -> None:
    log = (
        "\x1b[36m(TaskRunner pid=1)\x1b[0m step 3\nray.exceptions.ActorDiedError: The actor died unexpectedly before "
        "finishing this task.\n\tclass_name: Worker\n\tpid: 7\nThe actor is dead because its worker process has died.\n"
    )
    (error,) = errors_in(log)
    assert error.endswith("before finishing this task (Worker).")
    assert is_transient(error)


def test_an_error_is_a_line_that_names_one_or_a_full_disk() -> None:
    log = (
        "step 1: an Error in the middle of a line\n"
        "OSError: [Errno 28] No space left on device: 'a'\n"
        "(raylet pid=7) disk is full: No space left on device\n"
        "  ValueError: " + "x" * 500 + "\n"
        "a line between an error and an actor\n"
        "class_name: Unrelated\n"
        "torch.cuda.OutOfMemoryError\n"
        "class_name: Worker\n"
    )
    assert errors_in(log) == [
        "OSError: [Errno 28] No space left on device: 'a'",
        "disk is full: No space left on device",
        "ValueError: " + "x" * 488,
        "torch.cuda.OutOfMemoryError (Worker).",
    ]
    assert errors_in("class_name: Worker\n") == []


def test_the_loss_of_rays_head_is_an_error_that_may_not_come_again() -> None:
    line = "[2026-01-02 03:04:05,678 E 1 2] rpc_client.h:204: Failed to connect to GCS within 60 seconds. GCS may have"
    assert errors_in(line) == ["Failed to connect to GCS within 60 seconds"]
    assert is_transient(errors_in(line)[0])


def test_an_actor_that_fails_in_its_own_start_fails_again() -> None:
    error = "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, ray::A()"
    assert not is_transient(error)


def test_an_error_without_a_text_is_its_type() -> None:
    assert error_line(TimeoutError()) == "TimeoutError"


def test_an_error_s_first_line_is_cut_and_what_stands_below_may_be_the_cause() -> None:
    class Late(Exception): ...

    assert error_line(Late("x" * 500)) == "Late: " + "x" * 494
    assert error_line(ValueError("first\nsecond\nKeyError: 'a'\nOSError: b")) == "OSError: b"
    assert error_line(ValueError("the actor died.\nclass_name: A")) == "ValueError: the actor died (A)."


def test_an_error_of_an_unusual_name_is_its_first_line() -> None:
    class Late(Exception): ...

    assert error_line(Late("no answer\nin time")) == "Late: no answer"


def test_an_engine_that_died_as_it_took_weights_is_still_a_loss() -> None:
    """The sender on CPU says what it was doing before what happened (``cpu.vllm_rollout``)."""
    from ray.exceptions import ActorDiedError

    engine_died = (
        "ray::vLLMHttpServer.collective_rpc() (pid=7)\n"
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
    )
    for error in (ActorDiedError(), RuntimeError(engine_died)):
        assert is_transient(f"RuntimeError: vLLM did not take the new weights: {error_line(error)}")
    assert not is_transient("RuntimeError: vLLM did not take the new weights: ValueError: too long")
