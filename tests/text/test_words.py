import unicodedata
from pathlib import Path

import pytest

from faith_dspy import Judge, Unscored
from faith_dspy.text import words
from faith_dspy.text.languages import (
    LANGUAGES,
    VALUES,
    has_word_breaks,
    language_of,
    stem,
    word_lists,
)
from faith_dspy.text.words import has_words, tidy, tokenize, visible

FILES = Path(words.__file__).parent / "word_lists"


def test_every_file_is_a_language():
    """Another language has no function words and no stemmer – the first two thirds of a word count, at least four
    letters –, but “mille” counts in a text of any."""
    assert {path.stem for path in FILES.glob("*.json")} == set(LANGUAGES)
    assert word_lists("klingon") == word_lists("other")
    assert not word_lists("klingon").function_words
    assert (stem("stolicą", "klingon"), stem("ryba", "klingon")) == ("stoli", "ryba")
    assert (VALUES.magnitudes["mille"], VALUES.magnitudes["milliarde"]) == (
        10**3,
        10**9,
    )


def test_languages_are_guessed_by_function_words():
    """Most hits win, of equal ones the first in `LANGUAGES`; a long text with few hits is of another language."""
    assert language_of("Der Hund und die Katze") == "german"
    assert language_of("Pets aren't allowed.") == "english"
    assert language_of("Zug " * 19) == "english"
    assert language_of("Zug " * 20) == "other"
    assert [language_of(text) for text in ("Ναι", "Да", "नीला", "", "7")] == [
        "greek", "russian", "hindi", "english", "english",
    ]  # fmt: skip


SAYS_NOTHING = [
    "", " \t\n", "\u200b\u200d", "\x00", "\u3164", "\u2800", "\U000e0041", "\u202e", "\ufe0f", "* * *", "| --- | :-: |",
    "┌──┐", "[ ]",
]  # fmt: skip
SAYS_SOMETHING = ["a", "7", "\u200b7", "你", "| ½ |", "한", "ก", "ʼn"]


@pytest.mark.parametrize(
    ("text", "words"),
    [*((t, False) for t in SAYS_NOTHING), *((t, True) for t in SAYS_SOMETHING)],
)
def test_a_text_with_words(text, words):
    """What cannot be seen, fillers that Unicode calls letters, rules of tables and punctuation say nothing; one letter
    or digit of any script is enough."""
    assert has_words(text) is words


def test_what_is_visible():
    """Letters, marks, emoji, private characters and number signs that Unicode calls formats stay; joiners may."""
    for text in ("é", "e\u0301", "👩", "\uf8ff", "\u0600١", "ی\u200cخ", "\t "):
        assert visible(text) == text
    assert visible("👩\u200d💻❤\ufe0f") == "👩💻❤"
    assert visible("\u3164\u200d\u3164") == ""


WORDS = {
    "hindi": ("बिल्ली पानी में नहीं है।", ["बिल्ली", "पानी", "में", "नहीं", "है"]),
    "malayalam": ("പൂച്ച നീലയാണ്.", ["പൂച്ച", "നീലയാണ്"]),
    "sinhala": ("ශ්\u200dරී ලංකාව", ["ශ්රී", "ලංකාව"]),
    "tibetan": ("བྱི་ལ་སྔོན་པོ་རེད།", ["བྱི", "ལ", "སྔོན", "པོ", "རེད"]),
    "arabic": ("القِطّة زرقاء.", ["القِطّة", "زرقاء"]),
    "hebrew": ("הֶחָתוּל כחול.", ["הֶחָתוּל", "כחול"]),
    "korean": ("파란색", ["파란", "란색"]),
    "japanese": ("猫は赤い", ["猫は", "は赤", "赤い"]),
    "thai": ("สีฟ้า", ["สี", "ีฟ", "ฟ้", "้า"]),
}
"""Scripts that divide words, and three that are compared by pairs of characters."""


@pytest.mark.parametrize(("text", "expected"), WORDS.values(), ids=WORDS)
def test_words_of_any_script_are_whole(text, expected):
    """No word is cut at a vowel sign, a point or a joiner."""
    text = tidy(text)
    assert [t.raw for t in tokenize(text, language_of(text))] == [
        unicodedata.normalize("NFKC", w) for w in expected
    ]


RED_OR_BLUE = {
    "bengali": ("বিড়ালটি লাল।", "বিড়ালটি নীল।"),
    "russian": ("Кошка красная.", "Кошка синяя."),
    "georgian": ("კატა წითელია.", "კატა ლურჯია."),
    "chinese": ("猫是红色的。", "猫是蓝色的。"),
    "english": ("The cat is red.", "The cat is blue."),
    "french": ("Le chat est rouge.", "Le chat est bleu."),
    "german": ("Die Katze ist rot.", "Die Katze ist blau."),
}


@pytest.mark.parametrize(("red", "blue"), RED_OR_BLUE.values(), ids=RED_OR_BLUE)
def test_a_blue_cat_is_not_a_red_one(red, blue):
    """Judged by words alone, what the context says is faithful, and another colour is not."""
    judge = Judge("none")
    assert [judge(context=[red], answer=answer).faithful for answer in (red, blue)] == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    "answer", ["แมวมีสีฟ้า", "ແມວສີຟ້າ.", "ឆ្មាមានពណ៌ខៀវ។", "ကြောင်က အပြာရောင်ဖြစ်သည်။", "ꦏꦸꦕꦶꦁꦧꦶꦫꦸ"],
    ids=["thai", "lao", "khmer", "burmese", "javanese"],
)  # fmt: skip
def test_a_script_that_does_not_divide_words_takes_an_lm(answer):
    """Where finding words takes a dictionary, words alone do not decide: the answer is unscored, and is escalated."""
    assert not has_word_breaks(answer)
    judge = Judge("none")
    found = judge(context=[answer], answer=answer)
    assert (found.unscored, "name an LM" in (found.detail or "")) == (
        Unscored.LANGUAGE,
        True,
    )
    assert judge.should_escalate(found)


ENGLISH = "Lamps can be returned within 30 days with the receipt, and sale items are exchanged only."
ELSEWHERE = {
    "german": "Lampen können innerhalb von 30 Tagen mit der Quittung zurückgegeben werden.",
    "french": "Les lampes peuvent être retournées dans les 30 jours avec le reçu.",
    "polish": "Lampy można zwrócić w ciągu 30 dni z paragonem.",
    "chinese": "灯具可以在30天内凭收据退货。",
    "japanese": "ランプはレシートがあれば30日以内に返品できます。",
    "korean": "램프는 영수증이 있으면 30일 이내에 반품할 수 있습니다.",
    "arabic": "يمكن إرجاع المصابيح خلال 30 يومًا مع الإيصال.",
    "hindi": "लैंप रसीद के साथ 30 दिनों के भीतर वापस किए जा सकते हैं।",
    "russian": "Лампы можно вернуть в течение 30 дней с чеком.",
}


@pytest.mark.parametrize("answer", ELSEWHERE.values(), ids=ELSEWHERE)
def test_words_of_two_languages_are_not_compared(answer):
    """Without an LM such an answer is unscored, either way round, and escalated; its own language is judged."""
    judge = Judge("none")
    ways = [(ENGLISH, answer), (answer, ENGLISH)]
    for context, said in ways[
        : 1 if answer == ELSEWHERE["polish"] else 2
    ]:  # a short text does not tell that it is
        judgment = judge(context=[context], answer=said)
        assert (judgment.unscored, judgment.score) == (Unscored.LANGUAGE, None)
        assert judge.should_escalate(judgment)
    assert judge(context=[answer], answer=answer).faithful


@pytest.mark.parametrize(
    ("context", "answer"),
    [
        (ENGLISH, "30 days."),
        (ENGLISH, "Yes, within 30 days (30 Tage)."),
        (
            "The word Schadenfreude comes from die Freude über das Leid der anderen.",
            "Schadenfreude is a German word.",
        ),
        (
            "北京的面积很大。 Beijing is big, and it is the capital of the country.",
            "Beijing is the capital of the country.",
        ),
        (
            "Anna Smith, Bert Jones, Carl Wood and Dora Hill were there.",
            "Anna Smith, Bert Jones, Carl Wood, Dora Hill",
        ),
    ],
)
def test_a_foreign_word_or_few_words_are_judged(context, answer):
    assert Judge("none")(context=[context], answer=answer).unscored is None
