"""What the model is asked that makes tasks: each prompt wants one JSON object between <answer> and </answer>."""

_RULES = """
A good question has exactly one short answer: a number, a name, a date or a short list. The answer does not change with
time, and nobody can know or guess it without the tools. The question can be understood by itself, and does not say how
to find the answer. Use nothing but what your tools returned.
"""

_EXPLORE = """
You write questions for an agent that has the same tools as you. Explore the material below with your tools before you
write: call each tool that your question will need, and see what it returns.
"""

_CHANGE = """
Below is a question with its answer, for an agent that has the same tools as you. Change it as follows, find out what
you add with your tools, and leave the rest as it is.
"""

CHANGES = {
    "deepen": "Replace something that the question names by a description of it that the agent has to look up first. "
    "The answer stays the same. The added question asks for what was replaced.",
    "widen": "Ask for something that needs a second fact beside the one that the answer tells now. The added "
    "question asks for that fact.",
    "fuzz": "Replace exact names, dates and numbers of the question by vaguer words that still fit one thing only. The "
    "answer stays the same. The added question asks which thing the vaguer words mean.",
}
"""Ways to make a question harder, each with what is asked for."""

_PROPOSAL = 'End with <answer>{"question": "...", "answer": "..."}</answer>.'
_CHANGED = (
    'End with <answer>{"question": "...", "answer": "...", "added_question": "...", "added_answer": "..."}</answer>: '
    "the changed question with its answer, and a question for what you added alone with its answer."
)


def explore_prompt(material: str, number: int, count: int) -> str:
    others = (
        f" This is question {number} of {count} about it; ask what the others do not ask."
        if count > 1
        else ""
    )
    return "\n".join([_EXPLORE.strip(), _RULES, f"{_PROPOSAL}{others}", "", f"Material: {material}"])


def change_prompt(change: str, question: str, answer: str) -> str:
    return "\n".join(
        [
            _CHANGE.strip(),
            "",
            CHANGES[change],
            _RULES,
            _CHANGED,
            "",
            f"Question: {question}",
            f"Answer: {answer}",
        ]
    )
