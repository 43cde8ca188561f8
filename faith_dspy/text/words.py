"""Text into comparable words, in any script: markup and citations aside, stems, numbers and their kin as values."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from itertools import zip_longest
from typing import NamedTuple

import regex

from faith_dspy.text.languages import (
    LANGUAGES,
    VALUES,
    language_of,
    stem,
    unit_stems,
    word_lists,
)

# What is a letter, a mark or a digit is Unicode's to say: Python's \w has no vowel signs, and would cut Hindi at each.
_PAIRED = (
    r"\p{LB=SA}\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
    r"\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
)
"""Thai, Lao, Burmese, Khmer and their like, kana and Han, written without spaces; and Hangul, whose particles cling to
the word. They are compared by pairs of characters."""
_LETTERS = (
    rf"[[\p{{L}}\p{{Nl}}\p{{No}}]--[{_PAIRED}]][[\p{{L}}\p{{M}}\p{{N}}_]--[{_PAIRED}]]*"
)


def _any_of(words: Iterable[str]) -> str:
    """Return a pattern of words in any case, the longest first; without words one that matches nothing.

    What a word may begin with is looked at first: few words of a text are among them.
    """
    longest_first = sorted(words, key=len, reverse=True)
    if not longest_first:
        return "(?!)"
    letters = {word[0] for word in longest_first}
    return f"(?=(?i:[{''.join(sorted(letters))}]))(?i:{'|'.join(longest_first)})"


_NO_WORD = regex.compile(rf"[{_PAIRED}-]")
"""What a weekday has that is not told as a word: a hyphen, or a script without spaces."""


@cache
def _tokens(language: str) -> regex.Pattern[str]:
    numbers = word_lists(language).number_words
    tens = _any_of(word for word in numbers if numbers[word] >= 20)
    small = _any_of(word for word in numbers if numbers[word] < 20)
    magnitude = rf"{_any_of(VALUES.magnitudes)}(?![\p{{L}}\p{{N}}])"
    spelled = rf"(?:{tens}(?:[\s-](?:{small}|(?i:one)))?|{small}|(?i:one)(?=[\s-]{magnitude}))"
    negations = (w for name in LANGUAGES for w in word_lists(name).negations)
    phrases = _any_of(negation for negation in negations if " " in negation)
    half = rf"{_any_of(VALUES.halves)}\b"
    weekday = _any_of(day for day in VALUES.weekdays if _NO_WORD.search(day))
    acronym = f"(?:{'|'.join(VALUES.acronyms)})"
    given_name = f"(?:{'|'.join(VALUES.given_names)})"
    return regex.compile(
        r"(?=[-\d]|minus\s)(?:"
        r"(?P<date>(?<!\d)\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?!\d)|(?<!\d)\d{1,2}[./]\d{1,2}[./]\d{4}(?!\d)"
        r"|\d{4}年\d{1,2}月\d{1,2}日)"
        r"|(?P<time>(?<![\d.,:])(?:\d{1,2}(?:[.:]\d{2})?\s?Uhr\b|\d{1,2}(?:[:.]\d{2})?\s?[AaPp]\.?[Mm]\b\.?"
        r"|\d{1,2}:\d{2}(?::\d{2})?(?![\d:])(?:\s?[AaPp]\.?[Mm]\b\.?)?|\d{1,2}\s?h\s?\d{2}\b))"
        r"|(?P<ratio>(?<![\d/])(?:\d+\s)?[1-7]/[2348](?![\d/]))"
        r"|(?P<minus>(?<!\w)(?<!\d\s)-(?=\d)|\bminus\s(?=\d)|(?<=(?<!\w)-[$€£¥])(?=\d))?"
        r"(?P<number>\d{1,3}(?:[ \u00a0\u202f'’]\d{3})+(?:[.,]\d+)?(?!\d)|\d+(?:[.,]\d+)*)"
        rf"(?:(?i:st|nd|rd|th|er|ère|ers|e|ème)(?!\p{{L}})"
        rf"|(?P<scale>{_any_of(VALUES.scales)}(?![\p{{L}}\p{{N}}])|[\s-]?{magnitude}))?)"
        r"|(?=[UCA$€£¥₹%°pd])(?P<sign>(?:US|CA|AU|A|C)?\$|[€£¥₹%]|°[CF]\b|\b(?:per|pour|por)\s(?:cent|cento|ciento)\b"
        r"|\bdegrees?\s(?i:celsius|fahrenheit)\b)"
        rf"|(?P<fraction>\b{_any_of(VALUES.fractions)}\b)"
        rf"|(?P<after>\b{_any_of((*VALUES.halves, *VALUES.below_zero))}\b)"
        rf"|(?=[oOhHaAuU])(?P<one>(?<!-)\b(?i:one|half\san?|(?:an?|une?|una)(?=\s\w+\s{half}))(?=[\s-](?:{_any_of(VALUES.units)}\b|{half})))"
        rf"|(?P<spelled>\b(?:minus\s)?{spelled}(?:\s{half}(?=\s{magnitude}))?(?:[\s-]{magnitude}(?:\s(?:(?:and|und|y|e|en)\s)?{spelled})?)*\b)"
        rf"|(?P<weekday>{weekday})"
        r"|(?P<comparison>[<>≤≥]=?)"
        rf"|(?P<paired>(?:(?!{weekday})[{_PAIRED}\u0300-\u036f\u3099\u309a])+)"
        rf"|(?=[IUWM])(?P<name>\b{acronym}\b(?=\s\p{{Ll}})|\b{given_name}\b(?=\s\p{{Lu}}\p{{Ll}})"
        rf"|(?<=[\p{{Ll}},]\s)(?:{acronym}|{given_name})\b)"
        rf"|(?P<word>\b{phrases}\b|(?:{_LETTERS})(?:(?:['’]|-\s*\n\s*(?=\p{{Ll}}))(?:{_LETTERS}))*)",
        regex.VERSION1,
    )


Keys = tuple[str, ...]


class Token(NamedTuple):
    """One comparable unit of a text."""

    key: str
    """What is compared: a word's stem, ``#value`` for a number, a unit, a month or a time, two characters in scripts
    without spaces."""
    raw: str
    start: int
    """Offset in the comparable text."""
    kind: str
    """``word``, ``number`` or ``function`` (a word that carries no content)."""
    negates: bool = False
    also: Keys = ()
    """Further keys that it may stand for."""

    @property
    def end(self) -> int:
        return self.start + len(self.raw)

    @property
    def is_value(self) -> bool:
        """Whether it is a number, not a unit, a month or a word."""
        return self.kind == "number" and _VALUE.match(self.key) is not None

    @property
    def is_unit(self) -> bool:
        """Whether it is a unit, a currency or a month beside a number."""
        is_weekday = self.key.startswith("#weekday")
        return self.kind == "number" and not self.is_value and not is_weekday


_VALUE = re.compile(r"#-?\d")
_NUMBER = re.compile(r"#-?\d+(?:\.\d+)?")


def number_of(key: str) -> float | None:
    """Return the number that a token's key stands for; None for a time and anything else."""
    return float(key[1:]) if _NUMBER.fullmatch(key) else None


_LIST_MARKER = re.compile(
    r"(?m)^[^\S\n]*(?:\(?(?:\d{1,2}|[a-zA-Z])[.)](?=\s|$)|[*•·]|-(?!\d))\s*"
)
_REFERENCE = re.compile(
    r"\b(?:passage|document|source|chunk|context|section|step|étape|schritt|paso|abschnitt|quelle|dokument)e?[sn]?"
    r"\s+#?\d{1,2}\b(?:\s*(?:,|;|-|&|and|or|et|und|ou|y|to)\s*\d{1,2}\b)*",
    re.IGNORECASE,
)
CITED_KINDS = (
    r"(?:citations?|cite|sources?|src|docs?|documents?|refs?|references?|ids?|oaicite"
    r"|passages?|chunks?|contexts?|quellen?|fuentes?)"
)
_RAISED = "¹²³⁰⁴⁵⁶⁷⁸⁹"
_POWER = r"(?<!\b(?:[cdkm]?m|ft|in|yd|mi|\d+))"
"""A raised number behind a unit or a number is a power: ``m<sup>2</sup>``."""
_QUANTITY = (
    r"(?:(?:business|calendar|working)\s)?"
    r"(?i:days?|weeks?|months?|years?|hours?|minutes?|percent|%|euros?|dollars?)"
)
"""Brackets only set off a number that a unit follows: “within [90] days”."""
_NUMBERS = r"[\^S#]?\d{1,3}(?:\s*(?:[,;–-]|and|&)\s*[\^S#]?\d{1,3}){0,20}"
_PAGE = r"(?:,?\s*pp?\.?\s*\d{1,4}(?:[–-]\d{1,4})?)?"
_AUTHOR = r"\p{Lu}[\p{L}'’-]{1,40}"
_AUTHOR_YEAR = (
    rf"{_AUTHOR}(?:\s(?:and|&|et\sal\.?)(?:\s{_AUTHOR})?)?,?\s(?:19|20)\d\d[a-z]?"
)
_ATTRIBUTES = r"(?:\s[^<>=]{1,40}=[^<>]{0,500})?\s*/?"
"""Of a tag; words without a value are none."""
_TARGET = r"\((?:https?://[^()\s]{0,2000}|[!-'*-~]{0,500})\)"
"""Of a link: words of a script without spaces are none."""
_CITATIONS = (
    rf"{_POWER}<sup{_ATTRIBUTES}>(?:<a{_ATTRIBUTES}>)?\s*\[?[\d,;\s–-]{{1,40}}\]?\s*(?:</a>)?</sup>",
    rf"<cite{_ATTRIBUTES}>[\[\]\d,;\s–-]{{1,40}}</cite>",
    r"【\d[^】\n]{0,80}】",
    r"(?::contentReference)?\[oaicite:\d{1,3}\](?:\{index=\d{1,3}\})?",
    rf"\[\[?{_NUMBERS}{_PAGE}\]\]?(?:{_TARGET})?(?!\s{_QUANTITY}\b)",
    r"\[\^[\w-]{1,40}\](?!:)",
    rf"\[(?i:{CITED_KINDS})(?=[\s:_.#\d-])[^\[\]\n]{{1,80}}\]",
    r"\[[^\[\]\n.]{1,60}\.(?i:pdf|md|html?|docx?|txt|pptx?|xlsx?|csv|json)\b[^\[\]\n]{0,40}\](?!\()",
    rf"\[{_AUTHOR_YEAR}\](?!\()|\({_AUTHOR_YEAR}\)",
    rf"\((?i:{CITED_KINDS})(?:\s?:\s?[^()\n]{{1,120}}|[\s_#]{{0,2}}\d{{1,3}}(?:\s?(?:,|;|-|and|&)\s?\d{{1,3}}){{0,9}})\)",
    rf"⁽[{_RAISED}]{{1,3}}⁾",
    rf"(?:(?<=\p{{L}}{{3}})|(?<=[.,;:!?)\"'”’\]])|(?<!\S))[{_RAISED}](?:[{_RAISED},]{{0,11}}[{_RAISED}])?",
)
_CITATION = regex.compile("|".join(_CITATIONS), regex.VERSION1)
"""Forms in which models write citations: ``[1, 2]``, ``[^1]``, ``[[1]](url)``, ``【4†source】``,
``(Source: …)``, ``<sup>1</sup>``, ``¹``, ``[doc_1]``, ``[a.pdf, p. 3]``, ``[1 and 2]``, ``[oaicite:1]``,
``[Smith, 2020]``, ``(Smith et al., 2020)``."""
_INLINE = (
    "b|i|em|strong|span|u|a|code|mark|sub|sup|font|s|small|del|ins|q|cite|abbr|kbd|tt"
)
_BLOCK = "p|br|div|li|ul|ol|td|th|tr|table|tbody|thead|h[1-6]|hr|pre|blockquote|section|article|dl|dt|dd"
_MARKUP = regex.compile(
    rf"(?P<gone></?(?i:{_INLINE}){_ATTRIBUTES}>|`+|~~|(?<!\w)\*+(?=\S)|(?<=\S)\*+(?!\w)|(?<!\w)__+(?=\w)|(?<=\w)__+(?!\w)"
    r"|(?m:^\s{0,3}#{1,6}\s)|(?m:^\s{0,3}>\s))"
    rf"|(?P<block></?(?i:{_BLOCK}){_ATTRIBUTES}>|\|)"
    r"|!?\[(?P<text>[^\[\]\n]{0,500})\]\((?:[^()\s]|\([^()\s]{0,200}\)){1,2000}(?:\s\"[^\"\n]{0,200}\")?\)",
    regex.VERSION1,
)
"""Tags, emphasis, headings, quotations, tables and links of HTML and Markdown."""


def without_markers(text: str) -> str:
    """Strip list markers, citations and references (“Passage 1 and 3”, “Step 4”), which assert nothing."""
    text = without_citations(text)
    text = _LIST_MARKER.sub("", text)
    return _REFERENCE.sub(" ", text)


def begins_list_item(text: str) -> bool:
    """Tell whether a text begins as an item of a list; an option that was chosen (“(B) Lima”) is none."""
    marker = _LIST_MARKER.match(text)
    return marker is not None and marker[0].strip()[-1:] != ")"


def citations_in(text: str) -> Iterator[regex.Match[str]]:
    """Yield the citations of a text; brackets that say something are none."""
    return filter(_only_cites, _CITATION.finditer(text))


def begins_with_citation(text: str) -> bool:
    """Tell whether a citation is the first of a text."""
    first = next(citations_in(text), None)
    return first is not None and first.start() == 0


def without_citations(text: str) -> str:
    """Strip what `citations_in` yields."""
    stripped: str = _CITATION.sub(
        lambda match: " " if _only_cites(match) else match[0], text
    )
    return stripped


def _only_cites(match: regex.Match[str]) -> bool:
    cited = _CITED.sub("", match[0])
    return names_only(cited)


_CITED = regex.compile(rf"^\W*(?:(?i:{CITED_KINDS})\b)?|https?://\S*")
"""What a citation has before the name of a source, and addresses."""
_NAME_WORD = regex.compile(r"[^\s,;:()\[\]\"“”|†【】<>]+")
_PLAIN_WORD = regex.compile(r"[\p{L}\p{M}'’-]+")
_UNSPACED_CHARACTER = regex.compile(rf"[{_PAIRED}]", regex.VERSION1)
UNSPACED_VERB = re.compile(
    r"是|为|有|です|ます|する|なる|れる|了|会|不|没|无|失效|到期|过期|禁止|必须|可以|后$"
)
_LONGEST_NAME = 8
"""Characters in a script without spaces."""


def names_only(text: str) -> bool:
    """Tell whether a text can only name sources, as titles and file names do, and asserts nothing.

    It has no verb, and of its content words at most two, or half, are in lower case and no names of files.
    """
    words = [word.strip(".!*_。！") for word in _NAME_WORD.findall(text)]
    plain = {
        word
        for word in words
        if _PLAIN_WORD.fullmatch(word) and word[0] == word[0].lower()
    }
    if not plain:
        return True
    lists = word_lists(language_of(text))
    verbs = lists.stating_verbs - VALUES.months.keys()
    content = [word for word in words if word.lower() not in lists.function_words]
    unspaced = _UNSPACED_CHARACTER.findall(text)
    return (
        verbs.isdisjoint(map(str.lower, words))
        and len(plain.intersection(content)) <= max(2, len(content) // 2)
        and len(unspaced) <= _LONGEST_NAME
        and not UNSPACED_VERB.search(text)
    )


def without_markup(text: str) -> str:
    """Return what a reader sees of HTML and Markdown: no entities, tags, emphasis, links, bars of tables."""
    visible_text: str = _MARKUP.sub(_shown, html.unescape(text))
    return visible_text


def _shown(match: regex.Match[str]) -> str:
    if match[0] == "|":
        return " "
    if match["block"]:
        return "\n"
    return match["text"] or ""


def comparable(text: str) -> str:
    """Return a text in the form that is compared: without citations and markup, `tidy`."""
    return tidy(without_markup(without_citations(text)))


def tidy(text: str) -> str:
    """Bring compatibility characters, typographic quotes and dashes to one form; case is kept."""
    if text.isascii():
        return text
    text = _VULGAR_FRACTION.sub(r" \g<0>", text)
    text = re.sub(r"\u00ad\s+", "", text)
    text = _RAISED_POINT.sub(".", text)
    return unicodedata.normalize("NFKC", text).translate(_TIDY)


_VULGAR_FRACTION = re.compile(r"(?<=\d)[¼½¾⅐-⅞]")
_RAISED_POINT = re.compile(r"(?<=\d)·(?=\d)")


_TIDY = str.maketrans(
    "’‘“”„«»–—−‐⁄",
    '\'\'"""""----/',
    "\u200d\u00ad\u200b\u2060\ufeff",
)
"""A joiner (U+200D) only says how the letters beside it are drawn; a soft hyphen, where a line may end."""


def tokenize(text: str, language: str) -> list[Token]:
    """Return the tokens of a `comparable` text in order, by the word lists and the stemmer of ``language``."""
    tokens: list[Token] = []
    for match in _tokens(language).finditer(text):
        raw = match[0]
        start = match.start()
        match match.lastgroup:
            case "word":  # most of them
                tokens += _words(raw, start, language)
            case "name":
                tokens.append(Token(stem(raw.lower(), language), raw, start, "word"))
            case "weekday":
                day = VALUES.weekdays[raw.lower()]
                tokens.append(_value(f"weekday{day}", raw, start))
            case "comparison":
                tokens.append(Token(raw, raw, start, "function"))
            case "date":
                tokens += _date(raw, start, language)
            case "time":
                tokens.append(_time(raw, start))
            case "ratio":
                ratio = sum(map(Fraction, raw.split()))  # “1 1/2” is 1.5
                tokens.append(_value(_plain(float(ratio)), raw, start))
            case "one":
                amount = 0.5 if raw.lower().startswith("half") else 1
                tokens.append(_value(amount, raw, start))
            case "spelled":
                tokens.append(_value(_spelled(raw, language), raw, start))
            case "after":
                tokens = _with_rest(tokens, raw, start)
            case "minus" | "number" | "scale":
                tokens.append(_number(match, language))
            case "sign":
                unit = VALUES.units.get(raw.lower(), "%")
                tokens.append(_unit(unit, raw, start, language))
            case "fraction":
                tokens += _fraction(raw, start, language)
            case _:
                tokens += _pairs(raw, start)
    return _with_units(tokens, text, language)


def content_tokens(tokens: Sequence[Token]) -> list[Token]:
    """Return those that carry content."""
    return [t for t in tokens if t.kind != "function"]


def _value(
    value: object,
    raw: str,
    start: int,
    also: Keys = (),
) -> Token:
    key = f"#{value}"
    return Token(key, raw, start, "number", also=also)


def _date(raw: str, start: int, language: str) -> list[Token]:
    """Return day, month and year. Where day and month cannot be told apart, each may be the other."""
    numbers = list(map(int, re.findall(r"\d+", raw)))
    is_either = "/" in raw and max(numbers[:2]) <= 12
    if numbers[0] > 31:
        numbers.reverse()
    day, month, year = numbers
    if month > 12 or (is_either and language == "english"):
        month, day = day, month
    other_day = (f"#{month}",) if is_either else ()
    other_month = (f"#m{day}",) if is_either else ()
    return [
        _value(day, raw, start, other_day),
        _value(f"m{month}", raw, start, other_month),
        _value(year, raw, start),
    ]


def _time(raw: str, start: int) -> Token:
    """Return a time of day; without “am” or “pm” it may be either."""
    numbers = map(int, re.findall(r"\d+", raw))
    hour, minute, *_ = [*numbers, 0]
    half = re.search(r"[AaPp](?=\.?[Mm])", raw)
    also: Keys = ()
    if half:
        hour = hour % 12 + 12 * (half[0] in "Pp")
    elif 0 < hour < 12:
        also = (f"#{hour + 12}:{minute:02}",)
    return _value(f"{hour}:{minute:02}", raw, start, also)


def _spelled(raw: str, language: str) -> str:
    """Return the value of a number in words: “two hundred and fifty”, “twenty-one”, “two and a half million”."""
    numbers = word_lists(language).number_words | {"one": 1, "half": 0.5}
    total = group = 0.0
    words = re.findall(r"\w+", raw.lower())
    for word in words:
        factor = VALUES.magnitudes.get(word, 0)
        if not (factor and group):
            group += numbers.get(word, 0)
        elif factor < 1000:
            group *= factor
        else:
            total += group * factor
            group = 0
    total += group
    return _plain(-total if words[0] == "minus" else total)


def _with_rest(tokens: list[Token], raw: str, start: int) -> list[Token]:
    """Return the tokens with what “and a half” or “below zero” makes of the number before; else it is a word."""
    rest = raw.lower()
    for i, token in [*enumerate(tokens)][-2:]:
        number = number_of(token.key)
        if number is None:
            continue
        number = number + 0.5 if rest in VALUES.halves else -number
        whole = token.raw
        if i == len(tokens) - 1:  # no unit is between
            whole = f"{whole} {raw}"
        changed = token._replace(key=f"#{_plain(number)}", raw=whole)
        return [*tokens[:i], changed, *tokens[i + 1 :]]
    return [*tokens, Token(rest, raw, start, "word")]


def _number(match: regex.Match[str], language: str) -> Token:
    """Return a number, times its scale (“2bn”, “3 million”); “m” and “b” may be metres and bytes, too."""
    scale = match["scale"]
    value = number_value(match["number"], language)
    if match["minus"] is not None:
        value = f"-{value}"
    if scale is None:
        return _value(value, match[0], match.start())
    factors = VALUES.scales | VALUES.magnitudes
    factor = factors[scale.strip(" -").lower()]
    scaled = float(value) * factor
    is_unit = scale in ("m", "b") and float(value) < 1000
    also = (f"#{value}",) if is_unit else ()
    return _value(_plain(scaled), match[0], match.start(), also)


def _fraction(raw: str, start: int, language: str) -> list[Token]:
    """Return a fraction in words as percent; in the singular it may be a word, too (“three quarters” is no quarter)."""
    words = re.findall(r"\w+", raw.lower())
    stems: Keys = ()
    if not words[-1].endswith("s"):
        stems = tuple(stem(word, language) for word in words)
    share = VALUES.fractions[raw.lower()]
    return [
        _value(share, raw, start, stems),
        _unit("%", raw, start, language),
    ]


def _unit(
    unit: str,
    raw: str,
    start: int,
    language: str,
) -> Token:
    stems = unit_stems(unit, language)
    return _value(unit, raw, start, stems)


def _pairs(raw: str, start: int) -> list[Token]:
    """Return each two neighbouring characters of a script without spaces."""
    tokens = []
    count = max(1, len(raw) - 1)
    for i in range(count):
        pair = raw[i : i + 2]
        negates = any(sign in pair for sign in VALUES.unspaced_negations)
        token = Token(pair, pair, start + i, "word", negates)
        tokens.append(token)
    return tokens


def _words(raw: str, start: int, language: str) -> list[Token]:
    if "\n" in raw:  # divided at the end of a line, or a compound there
        parts = re.split(r"-\s+", raw)
        (token,) = _words("".join(parts), start, language)
        keys = tuple(_word(part, language)[0] for part in parts)
        return [token._replace(raw=raw, also=keys)]
    if "'" not in raw:
        key, kind, negates = _word(raw, language)
        return [Token(key, raw, start, kind, negates)]
    tokens = []
    for part in _parts(raw, language):
        key, kind, negates = _word(part, language)
        token = Token(key, part, start, kind, negates)
        tokens.append(token)
        start += len(part) + 1
    return tokens


def _with_units(tokens: list[Token], text: str, language: str) -> list[Token]:
    """Return the tokens with units and months beside numbers as values; unit after number, month after day."""
    out: list[Token] = []
    for token, following in zip_longest(tokens, tokens[1:]):
        before = out[-1] if out else None
        if before and (before.kind != "number" or not _are_beside(before, token, text)):
            before = None
        is_share = token.start > 0 and text[token.start - 1] == "/"
        follows = is_share or (before is not None and before.is_value)
        leads = (
            following is not None
            and following.is_value
            and _are_beside(token, following, text)
        )
        token = _named_value(token, follows, leads, language)
        out.append(token)
        if before and token.is_value and before.is_unit and before.key != "#%":
            out[-2:] = [token, before]
        if len(out) > 1 and out[-2].kind == "number":
            out[-2:] = _converted(out[-2:])
    return out


def _named_value(
    token: Token,
    follows: bool,
    leads: bool,
    language: str,
) -> Token:
    """Return a unit or a month as a value if it follows or leads a number; other words with what they stand for."""
    if token.kind == "number":
        return token
    low = token.raw.lower()
    unit = VALUES.units.get(low)
    if unit and (follows or (leads and low not in VALUES.durations)):
        return _unit(unit, token.raw, token.start, language)
    is_word = token.kind == "word"
    month = VALUES.months.get(low)
    is_certain = is_word and low not in VALUES.ambiguous_months
    if month and (is_certain or follows or leads):
        return _value(f"m{month}", token.raw, token.start, (token.key,))
    if month and is_word:
        return token._replace(also=(f"#m{month}",))
    weekday = _weekdays(language).get(token.key)
    if is_word and weekday is not None:
        return _value(f"weekday{weekday}", token.raw, token.start)
    alias = VALUES.aliases.get(token.raw)
    return token._replace(also=(alias,)) if alias else token


@cache
def _weekdays(language: str) -> dict[str, int]:
    """Return the weekdays by their stems."""
    return {stem(name, language): day for name, day in VALUES.weekdays.items()}


def _converted(tokens: list[Token]) -> list[Token]:
    """Return a number and its unit with the same in the smallest unit: ``2 h`` is ``7200 s``, too."""
    number = tokens[0]
    unit = tokens[-1]
    conversion = VALUES.conversions.get(unit.key[1:])
    if conversion is None or not number.is_value or ":" in number.key:
        return tokens
    factor, smallest = conversion
    amount = round(float(number.key[1:]) * factor, 9)
    quantity = f"#{_plain(amount)} {smallest}"
    return [token._replace(also=(*token.also, quantity)) for token in tokens]


_BETWEEN = re.compile(r"\s?|-|(?:\.|º)?,?\s?(?:(?:of|de|the)\s)?")


def _are_beside(left: Token, right: Token, text: str) -> bool:
    """Tell whether nothing but a space, a hyphen or “of” stands between."""
    between = _BETWEEN.fullmatch(text, left.end, right.start)
    return between is not None


def _parts(raw: str, language: str) -> list[str]:
    """Return a word without its English clitics (except ``n't``); split at the apostrophe elsewhere: ``l'accord``."""
    if raw.lower().endswith("n't"):
        return [raw]
    parts = raw.split("'")
    if language == "english" and len(parts[-1]) <= 2:
        return parts[:1]
    return parts


@lru_cache(maxsize=100_000)
def _word(raw: str, language: str) -> tuple[str, str, bool]:
    """Return key and kind of a word that is not a number, and whether it negates."""
    low = raw.lower()
    lists = word_lists(language)
    negates = low in lists.negations or low.endswith("n't")
    is_letter = len(low) == 1 and not raw.isupper()
    if negates or is_letter or low in lists.function_words:
        return low, "function", negates
    return stem(low, language), "word", False


@lru_cache(maxsize=10_000)
def number_value(raw: str, language: str) -> str:
    """Return a written number in one form: ``1,234.50`` and ``1.234,5`` (where the comma is decimal) are ``1234.5``.

    A single separator before exactly three digits groups thousands when the language uses it so; more than one
    separator of the same kind always groups.
    """
    digits = re.sub(r"[ \u00a0\u202f'’]", "", raw)
    group = "." if language in VALUES.decimal_comma else ","
    marks = re.sub(r"\d", "", digits)
    groups = marks == group and re.search(r"\D\d{3}$", digits)
    fraction = ""
    if marks and marks.count(marks[-1]) == 1 and not groups:
        digits, _, fraction = digits.rpartition(marks[-1])
        fraction = f".{fraction}"
    digits = re.sub(r"\D", "", digits) + fraction
    return _plain(float(digits))


def _plain(value: float) -> str:
    if abs(value) < 1e15 and value == int(value):
        return str(int(value))
    return repr(value)


def plain_words(text: str) -> str:
    """Return lower-case words with one space between, nothing else."""
    words = regex.findall(r"[\p{L}\p{M}\p{N}_]+", text.lower())
    return " ".join(words)


_INVISIBLE = regex.compile(
    r"(?!(?<=[[\p{Lo}\p{M}]--\p{DI}])[\u200C\u200D][\p{Lo}--\p{DI}])[[\p{Cc}\p{Cf}\p{Cs}\p{DI}]--[\t\p{PCM}]]",
    regex.VERSION1,
)
"""Control and format characters, lone surrogates, and what Unicode calls default-ignorable, but not the joiners and
non-joiners between letters of scripts without capitals, where spelling needs them."""
_SEEN = regex.compile(r"[[\p{L}\p{N}]--\p{DI}]", regex.VERSION1)


def visible(line: str) -> str:
    """Strip what shows nothing: zero-width, bidirectional, tag and control characters, fillers, selectors."""
    if line.isascii() and line.isprintable():
        return line
    shown: str = _INVISIBLE.sub("", line)
    return shown


def has_words(text: str) -> bool:
    """Tell whether there is a letter or a digit to be seen: without one, a text says nothing."""
    return _SEEN.search(text) is not None


_NULL = regex.compile(
    r"(?i)\s*(?:none|null|nan|<na>|n/a|\[(?:document|object object)\])\s*"
)


def is_null(text: str) -> bool:
    """Tell whether a text is what a program writes where it has none."""
    return _NULL.fullmatch(text) is not None
