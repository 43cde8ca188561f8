"""Sentences of conversations that state nothing a context could support, made from a training row's words.

Whether they count against an answer is a matter of the people who label. The model is held to what it said untaught
about them; the claims that stand beside them keep their label.
"""

from __future__ import annotations

import random
import re
from typing import Any

SMALL_TALK = """\
That's true.|I know!|Yeah.|Exactly.|Oh wow, I did not know that.|That is so interesting.|I agree with you.
Yes, I have heard of that.|No, I have not tried it yet.|I know a little about it.|I don't know much about that.
Good question!|Great question, let me look.|Sure, here is what I found.|Here is a short summary.|Of course.
I hope this helps!|Let me know if you would like to know more.|Thanks for asking.|You're welcome.|Happy to help.
How about you?|What do you think about it?|Do you like it, too?|lol, that is funny.|Me too!|I guess so.
I remember it from when I was a child.|I used to do that all the time.|It is one of my favorites.|I am not a big fan.
That must have been hard.|It sounds like a lot of fun.|I would love to go there some day.|My sister told me about it.
Das stimmt.|Das ist eine gute Frage.|Ich hoffe, das hilft.|Es cierto.|Espero que te ayude.|C'est vrai."""
ABOUT = """\
I love {}.|I really like {}!|My favorite is {}.|Do you like {}?|{} is so cool, isn't it?|I was just reading about {}.
I have always wanted to know more about {}.|I know a lot about {}.|I have never been interested in {}.
I am a big fan of {}.|I don't care much for {}.|Talking about {} makes me happy.|I grew up with {}."""
OPENINGS = """\
I think that |Yes, |Well, |I just read that |Did you know that |I heard that |As far as I know, |Actually, |I believe |
Good question! |That's true, and |Sure. |I know, right? |I love it! |Haha, yes, |Here is what I found: |In short, """
NAME = re.compile(r"(?<=[a-z,] )[A-Z]\w+(?: [A-Z]\w+)*|\b[a-z]{6,}s\b")
ENGLISH = re.compile(r"\b(?:the|of|is|was|are|and)\b")


def alternatives(text: str) -> list[str]:
    return [part for line in text.splitlines() for part in line.split("|") if part]


def small_talk(row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return the row with a sentence that states nothing in the statement's place."""
    statement = chance.choice(alternatives(SMALL_TALK))
    names = NAME.findall(" ".join([row["statement"], *row["context"]]))
    if names and chance.random() < 0.6:
        statement = chance.choice(alternatives(ABOUT)).format(chance.choice(names))
    return row | {"statement": _cased(statement, chance)}


def in_conversation(row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return the row with its statement as somebody would say it; its label stays."""
    opening = chance.choice(alternatives(OPENINGS))
    statement = row["statement"]
    name_first = re.match(r"[A-Z]\w*(?: [A-Z]|'s)", statement)
    if opening.rstrip()[-1] not in ".!?:" and not name_first:
        first_word = statement.split(" ")[0]
        if first_word.lower() in {
            "the",
            "a",
            "an",
            "it",
            "there",
            "in",
            "this",
            "they",
        }:
            statement = statement[0].lower() + statement[1:]
    return row | {"statement": _cased(opening + statement, chance)}


def is_english(row: dict[str, Any]) -> bool:
    return bool(ENGLISH.search(" ".join([row["statement"], *row["context"]])))


def _cased(statement: str, chance: random.Random) -> str:
    """Return some statements as they are typed in chats: without capitals, full stops set apart."""
    if chance.random() < 0.25:
        return re.sub(r"(?<=\w)([.,!?])(?=\s|$)", r" \1", statement.lower())
    return statement
