"""A chat endpoint in a process of its own whose answers take as long as those of a real one; run by `test_eval.py`.

    python mock_endpoint.py LOG

It prints its port. Each answer's time is drawn (lognormal, median 0.4 s, sigma 0.5) by its question and by how often
that was asked before, so every client waits for the same answers equally long. LOG gets a line a request: when it came,
when it was answered, and how long that had to take.
"""

import asyncio
import hashlib
import json
import math
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from aiohttp import web

MEDIAN_SECONDS, SIGMA = 0.4, 0.5


async def main(log_file: Path) -> None:
    request_counts: Counter[str] = Counter()
    with log_file.open("w", buffering=1) as log:

        async def complete(request: web.Request) -> web.Response:
            came = time.time()
            body: dict[str, Any] = await request.json()
            content = body["messages"][-1]["content"]
            question = content if isinstance(content, str) else content[0]["text"]
            request_counts[question] += 1
            rng = random.Random(hashlib.sha256(f"{question} {request_counts[question]}".encode()).digest())
            seconds = rng.lognormvariate(math.log(MEDIAN_SECONDS), SIGMA)
            await asyncio.sleep(seconds)
            total = sum(map(int, re.findall(r"-?\d+", question)))
            right = rng.random() < 0.7
            text = f"Let me add. <answer>{total if right else total + 1}</answer>"
            log.write(f"{came} {time.time()} {seconds}\n")
            message = {"role": "assistant", "content": text}
            return web.json_response(
                {
                    "id": "chatcmpl-1",
                    "object": "chat.completion",
                    "created": int(came),
                    "model": "mock",
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42},
                }
            )

        app = web.Application()
        app.router.add_post("/v1/chat/completions", complete)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=512).start()
        print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
