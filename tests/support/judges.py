"""Functions that judge claims, and such that cannot: for judges that ask a function by its name."""

import asyncio


def blue(claims):
    """The kettle is blue: everything else has a probability of .2."""
    return [0.9 if "blue" in claim.statement else 0.2 for claim in claims]


async def blue_later(claims):
    await asyncio.sleep(0)
    return blue(claims)


def verdicts(claims):
    return ["blue" in claim.statement for claim in claims]


def unsure(claims):
    return [0.5 for _ in claims]


def one_too_many(claims):
    return [0.9] * (len(claims) + 1)


def percent(claims):
    return [101 for _ in claims]


def words(claims):
    return ["yes" for _ in claims]


def table(claims):
    return [[0.1, 0.9] for _ in claims]


def nothing(claims):
    return [None for _ in claims]


def broken(claims):
    raise RuntimeError("no GPU\nTraceback")


def exits(claims):
    raise SystemExit(3)


NUMBER = 7
