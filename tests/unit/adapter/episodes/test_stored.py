"""What the store keeps of an episode says which of its tokens were trained on, as its rows do."""

from pathlib import Path

from aworld_train.adapter.episodes.stored import episode_content
from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.messages import ChatRequest, Message
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.outcome import Outcome
from aworld_train.rollout.react import ToolCounts
from aworld_train.rollout.token_episode import TokenEpisode
from aworld_train.store.keep import parse_keep
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from tests.templates import ScriptedModel, cut_up

LIMITS = EpisodeLimits(10, 1000, 1000, SamplingParams(1.0, 1.0, -1))


async def test_a_turn_is_under_the_mask_of_the_row_that_trains_on_it_alone(tmp_path: Path) -> None:
    model = ScriptedModel("chatml_tools", lambda tokenizer: (cut_up(tokenizer, "fine<|im_end|>", 0), True))
    episode = TokenEpisode(model, LIMITS)
    history = [Message("user", "Hello.")]
    history.append((await episode.complete("agent", ChatRequest(history))).message)
    for question in ("And now?", "Or else?"):
        await episode.complete("agent", ChatRequest([*history, Message("user", question)]))
    rows = episode.rows()
    assert [[any(row.mask[begin:end]) for begin, end in row.turns] for _, row in rows] == [
        [True, True],
        [False, True],
    ]

    recorder = StoreRecorder(tmp_path, parse_keep("all"), Redactor())
    result = EpisodeResult(episode, ToolCounts(), Outcome.answered)
    content = episode_content(recorder, result, rows, None, {})
    recorder.close()
    for number, (_, row) in enumerate(rows):
        assert content.rows[number].prompt_tokens == len(row.prompt)
        assert content.row_mask(number) == [0] * len(row.prompt) + row.mask
