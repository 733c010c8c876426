"""An agent of the standard library, which costs little: it asks the model once, and answers with what that says."""

import json
import os
import sys
import urllib.request

request = urllib.request.Request(
    f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
    json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": json.load(sys.stdin)["messages"]}).encode(),
    {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"},
)
with urllib.request.urlopen(request, timeout=600) as answer:
    text = json.load(answer)["choices"][0]["message"]["content"] or ""
sys.stdout.write(text.replace("\n", " ") + "\n")
