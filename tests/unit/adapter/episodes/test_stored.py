"""What the store keeps of an episode: which of its tokens are trained on, as in its rows, and no secret."""

from pathlib import Path

from aworld_train.adapter.episodes.scoring import EpisodeScore
from aworld_train.adapter.episodes.stored import episode_content
from aworld_train.reward.scored import ScoreOutcome, ScoreResult
from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.messages import ChatRequest, Message
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.outcome import Outcome
from aworld_train.rollout.react import ToolCounts
from aworld_train.rollout.token_episode import TokenEpisode
from aworld_train.rollout.tool_record import ToolCallRecord
from aworld_train.store.content import EpisodeContent, StoredScore
from aworld_train.store.keep import parse_keep
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from tests.stored_runs import written_events
from tests.templates import ScriptedModel, cut_up

LIMITS = EpisodeLimits(10, 1000, 1000, SamplingParams(1.0, 1.0, -1))


def says(text: str) -> ScriptedModel:
    return ScriptedModel("chatml_tools", lambda tokenizer: (cut_up(tokenizer, f"{text}<|im_end|>", 0), True))


def stored(
    run: Path, episode: TokenEpisode, tools: ToolCounts | None = None, score: EpisodeScore | None = None
) -> EpisodeContent:
    """What is kept of an episode where keys are secrets."""
    recorder = StoreRecorder(run, parse_keep("all"), Redactor([r"key-[0-9]+"]))
    result = EpisodeResult(episode, tools or ToolCounts(), Outcome.answered, "The key-1.")
    content = episode_content(recorder, result, episode.rows(), score, {})
    recorder.close()
    return content


async def test_a_turn_is_under_the_mask_of_the_row_that_trains_on_it_alone(tmp_path: Path) -> None:
    episode = TokenEpisode(says("fine"), LIMITS)
    history = [Message("user", "Hello.")]
    history.append((await episode.complete("agent", ChatRequest(history))).message)
    for question in ("And now?", "Or else?"):
        await episode.complete("agent", ChatRequest([*history, Message("user", question)]))
    rows = episode.rows()
    assert [[any(row.mask[begin:end]) for begin, end in row.turns] for _, row in rows] == [
        [True, True],
        [False, True],
    ]
    content = stored(tmp_path, episode)
    for number, (_, row) in enumerate(rows):
        assert content.rows[number].prompt_tokens == len(row.prompt)
        assert content.row_mask(number) == [0] * len(row.prompt) + row.mask


async def test_the_tokens_of_a_redacted_message_are_not_kept_and_those_of_others_are(tmp_path: Path) -> None:
    episode = TokenEpisode(says("It is key-7."), LIMITS)
    history = [Message("user", "Hello.")]
    history.append((await episode.complete("agent", ChatRequest(history))).message)
    history.append(Message("user", "And now?"))
    await episode.complete("agent", ChatRequest(history))
    played = list(episode.agents["agent"].graph.nodes())
    _, *nodes = stored(tmp_path, episode).agents[0].nodes
    for node, kept in zip(played[1:], nodes, strict=True):
        is_secret = "key-7" in node.messages[0].content
        assert (kept.redacted, kept.token_ids) == (is_secret, [] if is_secret else node.tokens)
        assert kept.token_count == len(node.tokens)
        assert kept.messages[0].content == ("It is [redacted]." if is_secret else "And now?")
    assert [node.redacted for node in nodes] == [True, False, True]


async def test_no_secret_is_in_calls_answer_and_score(tmp_path: Path) -> None:
    episode = TokenEpisode(says("fine"), LIMITS)
    await episode.complete("agent", ChatRequest([Message("user", "The key-2?")]))
    call = ToolCallRecord("ask key-3", '{"a": "key-4"}', "not key-5", True, 1.0, 0.1234567, False, "call-1")
    result = ScoreResult(
        None, "key-6", ScoreOutcome.error, {"key-7": 1.0}, ("saw key-8",), "no key-9", "exact"
    )
    content = stored(tmp_path, episode, ToolCounts(1, 1, 0.1234567, [call]), EpisodeScore(result, 1, 1))
    assert content.answer == "The [redacted]."
    [use] = content.tool_calls
    assert (use.name, use.arguments, use.result) == (
        "ask [redacted]",
        '{"a": "[redacted]"}',
        "not [redacted]",
    )
    assert (use.is_error, use.began, use.seconds, use.call_id) == (True, 1.0, 0.123457, "call-1")
    hidden = "[redacted]"
    assert content.score == StoredScore(
        None, "exact", "error", hidden, {hidden: 1.0}, (f"saw {hidden}",), f"no {hidden}"
    )
    blobs = written_events(tmp_path)
    assert blobs and "key-" not in repr((content, blobs))


async def test_a_turn_that_no_client_received_is_kept_as_such(tmp_path: Path) -> None:
    episode = TokenEpisode(says("fine"), LIMITS)
    request = ChatRequest([Message("user", "Hello.")])
    completion = await episode.complete("agent", request)
    episode.undelivered("agent", completion)
    content = stored(tmp_path, episode)
    assert [node.received for node in content.agents[0].nodes] == [True, False]
    assert content.rows == ()
