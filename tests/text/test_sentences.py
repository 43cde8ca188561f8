import textwrap
import time

import pytest

from faith_dspy import Unscored
from faith_dspy.schema import Chunk
from faith_dspy.text.features import Comparison, IndexedContext
from faith_dspy.text.sentences import (
    carries_statement,
    sentences,
    split_answer,
)
from faith_dspy.text.words import comparable

ANSWERS = {
    "abbreviations": (
        "Use it daily, e.g. in the U.S. or the U.K. See p. 12 of Fig. 3. It works at 100.5 °C.",
        3,
    ),
    "german": (
        "Der Kessel fasst 0,9 Liter. Dr. Müller bestätigte das am 3. Mai 2024. Er ist z. B. blau.",
        3,
    ),
    "french": (
        "La bouilloire contient 0,9 litre. M. Dupont l’a dit. Elle est bleue !",
        3,
    ),
    "spanish": (
        "¿Cuánto cabe? La tetera contiene 0,9 litros. El Sr. Pérez lo dijo.",
        3,
    ),
    "chinese": ("水壶的容量是0.9升。它是蓝色的！保修期为两年。", 3),
    "hindi": ("केतली में 0.9 लीटर पानी आता है। यह नीली है। वारंटी दो साल की है।", 3),
    "arabic": ("تسع الغلاية 0.9 لتر. لونها أزرق! الضمان سنتان.", 3),
    "list": ("Steps:\n1. Fill the kettle.\n2. Press KEEP.\n- Wait.\n  * Pour", 5),
    "windows line ends": ("One is blue.\r\nTwo is red.\r\n\r\nThree is green.", 3),
    "table": ("| Model | Litres |\n|---|---|\n| K4 | 0.9 |", 3),
    "code": ("Run this:\n```python\nx = 1.5\nprint(x)\n```\nIt prints 1.5.", 6),
    "ordinals": ("Es war der 3. Mai 2024 und nicht der 4. Juni.", 1),
    "full stops before digits": (
        "高さは333メートル[1]。1958年に完成。重さ3.5トン。",
        3,
    ),
    "dandas before digits": ("यह 1653 में बना।2020 में बंद हुआ।", 2),
    "chinese quotes": ("他说：“它是蓝色的。”然后他走了。", 2),
    "titles": ("Mr. Smith met Dr. Lee at 5 p.m. on Main St. in the U.S. It rained.", 2),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_offsets_give_the_answer_back(name):
    """Each sentence is the answer between its offsets, in order."""
    answer, count = ANSWERS[name]
    found = sentences(answer)
    assert [s.index for s in found] == list(range(count))
    assert [answer[s.start : s.end] for s in found] == [s.text.strip() for s in found]


DECLINING = [
    "I don't know.", "The documents provided do not say. I cannot tell.",
    "There is no evidence in the passages that the kettle is blue.",
    "I'm sorry, but I can't answer that. Is there anything else?", "Jag vet inte.", "Det ved jeg ikke.",
    "En tiedä.", "Bohužel to nevím.", "На жаль, не знаю.",
    "Es tut mir leid, aber ich kann diese Frage nicht beantworten.",
    "Leider enthält der Kontext keine Informationen dazu.",
    "Désolé, je ne peux pas répondre à cette question, car le contexte ne contient pas cette information.",
    "Je suis désolé. Il n'y a pas d'informations à ce sujet.", "No lo sé.", "根据提供的上下文，无法回答这个问题。",
    "申し訳ありませんが、その質問にはお答えできません。", "संदर्भ में कीमत की जानकारी नहीं है।",
    "النص لا يحتوي على معلومات عن السعر.", "The retrieved chunks don't contain the price [1].",
    "That's outside of what the documents cover.", "N/A",
    "I could not find this in the handbook. Please contact HR.",
    "Ich konnte in den Unterlagen leider nichts dazu finden [1].", "Le prix n'est pas mentionné dans le contexte.",
    "Mi dispiace, ma il contesto non specifica il prezzo.", "Não encontrei essa informação nos documentos.",
    "De documenten bevatten geen informatie over de prijs.", "Nie znalazłem tej informacji w dokumentach.",
    "В документах нет информации о цене.", "문서에서 해당 정보를 찾을 수 없습니다.", "我在文档中找不到这个信息。",
]  # fmt: skip
GOING_ON = [
    "I don't know, but the warranty is two years.",
    "The context does not mention the price, so it is probably two euros.",
    "The documents do not say: the kettle is blue.", "There is no evidence that coffee causes cancer.", "Sorry.",
    "We cannot help with refunds after 30 days.", "Das weiß ich nicht, aber er ist blau.",
    "Der Sensor kann die Temperatur nicht bestimmen.", "Le document ne mentionne pas le prix, il est de 20 euros.",
    "Aucune information n'a été volée.", "No se rompe.", "不包含铅。", "Leider enthält der Kessel keine Batterie.",
    "El texto no menciona el precio pero cuesta 20 euros.", "文中没有提到价格，保修期为两年。", "他不知道答案。",
    "価格はわかりませんが、色は青です。", "मुझे नहीं पता, लेकिन यह नीली है।", "لا أعرف، لكنها زرقاء.",
    "لا يذكر النص السعر، وهو عشرون.", "The company does not offer leave.", "None of the documents were signed.",
    "The treatment did not help, according to the documents.", "I don't know. Please contact HR within 30 days.",
    "O produto não contém glúten.",
]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "only"),
    [*((a, True) for a in DECLINING), *((a, False) for a in GOING_ON)],
)
def test_declining(answer, only):
    """An answer of which every sentence only says that it cannot be given, in fifteen languages; one that also says
    something, or only looks like declining, is judged like any other."""
    assert split_answer(answer).declines is only


@pytest.mark.parametrize(
    "answer",
    ["Hello! How can I help?", "Hi Anna!", "Guten Tag! Vielen Dank.", "Bonjour ! Merci.", "¡Hola! ¿Qué tal?",
     "你好！谢谢。", "こんにちは。", "नमस्ते! धन्यवाद।", "مرحباً! شكراً.", "Is it blue?\nOr red?", ""],
)  # fmt: skip
def test_greetings_and_questions_alone_are_no_statements(judge_at, answer):
    judge, server = judge_at()
    assert (
        judge(context=["The kettle is blue."], answer=answer).unscored
        is Unscored.NO_STATEMENTS
    )
    assert server.requests == []


NO_STATEMENTS = [
    "1.", "|---|---|", "```", "[2]", "👍", "\u3164\u3164", '"Is it blue?"', "Steps:", "步骤：", "Method 1:",
    "# **How to descale it**", "Here are the main features of the kettle that you asked about:",
    "Based on the handbook and on the other documents:", "Hier sind die wichtigsten Angaben aus den Dokumenten:",
    "This is not legal advice.", "As an AI language model, I cannot give medical advice.",
]  # fmt: skip
PLEASANTRIES = [
    "Sure!", "Let me know if you need more.", "That's a very good question.",
    "Yes, I'm happy to help you with that.", "Please let me know if you have any further questions!",
    "If you need anything else, feel free to ask.", "I'm here to help.", "Hi Anna, thanks, great question!",
    "Das ist eine sehr gute Frage!", "Natürlich, ich helfe Ihnen gerne.", "Ich hoffe, das hilft Ihnen weiter!",
    "Wenn Sie weitere Fragen haben, melden Sie sich gerne.", "Très bonne question !",
    "Bien sûr, je suis ravi de vous aider.", "J'espère que cela vous aide !",
    "Si vous avez d'autres questions, n'hésitez pas à me contacter.", "¡Claro, con mucho gusto!",
    "Espero que esto te ayude.", "Si tienes más preguntas, no dudes en preguntar.", "好的，很高兴为您服务！",
    "这是一个很好的问题！", "如果您还有其他问题，请随时告诉我。", "喜んでお手伝いします。",
    "とても良い質問ですね。", "お役に立てれば幸いです。", "他にご質問がございましたら、お気軽にお尋ねください。",
    "यह बहुत अच्छा सवाल है!", "मुझे आपकी मदद करके खुशी होगी।", "आशा है कि यह आपकी मदद करेगा।", "سؤال رائع!",
    "بكل سرور!", "يسعدني أن أساعدك.", "آمل أن يكون هذا مفيداً.", "إذا كان لديك أسئلة أخرى، لا تتردد في السؤال.",
]  # fmt: skip
STATEMENTS = [
    "The kettle is blue.", "42.5", "90 %", "print(3)", "## The kettle is blue", "The kettle is blue:",
    "水壶是蓝色的：", "Here is everything that was said about the old kettle:",
    "The guarantee is void in the following cases:", "Guarantee: void after one day:",
    "Source: Guarantee expires overnight.", "来源:保修期只有一天。",
    "Quelle: Die Garantie erlischt nach einem Tag.", "GUARANTEE EXPIRES", "As an AI I know that it is blue.",
    "Hello Kitty is a cat.", "Hi-fi sounds good.", "Thanks to Anna it works.", "Sure.", "Natürlich.",
    "Sure, it is blue.", "Happy to help is our motto.", "A good question is half the answer.",
    "Feel free to ask for a refund within 30 days.", "Gerne wird er im Sommer getrunken.",
    "Con gusto a limón se vende más.", "希望小学有三百名学生。", "Yes.",
]  # fmt: skip


@pytest.mark.parametrize(
    ("sentence", "states"),
    [
        *((text, False) for text in NO_STATEMENTS + PLEASANTRIES),
        *((text, True) for text in STATEMENTS),
    ],
)
def test_what_states_something(sentence, states):
    """List markers, citations, rules, symbols, questions, headings, courtesies and offers of help state nothing; words
    and quantities do, a sentence that goes on after a courtesy, and a “certainly” by itself, which may be an answer."""
    assert carries_statement(sentence) is states


BLUE, FULL = "The kettle is blue.", "It holds two litres."
FLOW = (
    "The kettle of the Alba series is blue and holds two litres of water, filled to the mark.",
    "It boils in three minutes, and the set was designed by Mara Holt in 2019.",
)


@pytest.mark.parametrize(
    ("answer", "claims"),
    [
        *((textwrap.fill(" ".join(FLOW), width), FLOW) for width in (40, 66, 80)),
        ("- " + textwrap.fill(FLOW[0], 50) + "\n- " + FLOW[1], [f"- {text}" for text in FLOW]),
        ("The labora-\ntory was fin-\nished.", ["The laboratory was finished."]),
        ("The kettle of Anna is blue\nThe lamp is red", ["The kettle of Anna is blue", "The lamp is red"]),
        (f"<think>It is red.\n\nIs it?</think>\n{BLUE}", [BLUE]),
        ("<think>It is red.", []), (f"<answer>\n{BLUE}\n</answer>", [BLUE]),
        (f"{BLUE}<|im_end|>", [BLUE]),
        (f"<b>{BLUE}</b> [INST]{FULL}[/INST]</s>", [BLUE, FULL]), ("Clone <url> first.", ["Clone <url> first."]),
        (f"**1. Colour**\n{BLUE}\n**2. Volume**\n{FULL}", [BLUE, FULL]),
        (f"COLOUR\n{BLUE}\nVOLUME\n{FULL}", [BLUE, FULL]),
        ("1. Paris\n2. Rome\nThey are old.", ["1. Paris", "2. Rome", "They are old."]),
        (f"EXPIRES\n{BLUE}\nVOLUME\n{FULL}", ["EXPIRES", BLUE, FULL]),
        ("| Part | State |\n|---|---|\n| lid | lost |", ["| lid | lost |"]),
        (f"![a kettle](kettle.png)\n{BLUE}", [BLUE]),
        ("![it is void after a day](a.png)", ["[it is void after a day](a.png)"]),
        (f'{{"answer": "{BLUE}\\n{FULL}", "sources": ["a.md"]}}', [BLUE, FULL]),
    ],
)  # fmt: skip
def test_only_claims_are_asked_and_whole(answer, claims):
    """Not thoughts, tags, marks of templates, titles, heads of tables or images; a wrapped line goes on."""
    assert [s.text for s in split_answer(answer).stating] == [*claims]


def test_a_text_without_end():
    """As a looping LM writes it: it declines, or goes on; a long row of greetings is no pleasantry. All is seen at
    once, and ends no run."""
    assert split_answer("I don't know; " * 1_000).declines
    assert not split_answer("I don't know but " * 1_600 + "it is blue.").declines
    assert carries_statement("hi " * 5_000 + "it is blue.")
    started = time.process_time()
    assert not split_answer("!" * 20_000).declines
    assert (
        time.process_time() - started < 2
    )  # 7.9 s where each sign was stepped back from


@pytest.mark.parametrize("unit", ["“x ", "'", "\"x 'y "])
def test_quotations_without_end_take_no_longer_than_they_are(unit):
    """Two hundred thousand characters are split in a second or two."""
    text = "He said " + unit * (200_000 // len(unit))
    started = time.process_time()
    assert "".join(s.text for s in sentences(text)).replace(" ", "") == text.replace(
        " ", ""
    )
    assert time.process_time() - started < 5


def test_a_long_text_is_split_as_a_short_one():
    """No sentence is cut where one block of text ends and the next begins."""
    text = "The lamp of Mr. Berg is blue. " * 3_000
    assert {s.text for s in sentences(text)} == {"The lamp of Mr. Berg is blue."}
    assert len(sentences(text)) == 3_000


MARKERS = [
    "[^1]",
    "【4†source】",
    "[S2]",
    "[^note]",
    "<sup>1</sup>",
    "[citation:1]",
    "[[1]](https://x.org/a)",
    "(Source: doc 3)",
    "[1]",
    "[1, 2]",
    "[1-3]",
    "¹²",
    "[doc_1]",
    "[a.pdf, p. 3]",
    "[1][2]",
    "[source: manual.md]",
    "(doc 1)",
    "<sup><a href='#1'>1</a></sup>",
    "【1:0†manual.pdf】",
]


@pytest.mark.parametrize("marker", MARKERS)
@pytest.mark.parametrize(
    "form",
    [
        "A cup is blue{0}. It is 5 metres{0}.",
        "A cup is blue.{0} It is 5 metres.{0}",
        "A cup is blue. {0} It is 5 metres. {0}",
    ],
)
def test_citations_are_no_statements_and_no_content(marker, form):
    """Wherever a marker stands, the same sentences state something, and their words are the same."""
    stating = [
        s.text for s in sentences(form.format(marker)) if carries_statement(s.text)
    ]
    words = [comparable(text).replace(".", "").split() for text in stating]
    assert words == [["A", "cup", "is", "blue"], ["It", "is", "5", "metres"]]


@pytest.mark.parametrize(
    "text",
    [
        "It is [very] blue.",
        "See [the manual] first.",
        "Area: 5 km².",
        "In [2024] it rose.",
        "f(x) is 2.",
        "(5) lamps",
    ],
)
def test_what_is_no_citation(text):
    assert comparable(text).replace("2", "²") == text.replace("2", "²")


@pytest.mark.parametrize(
    "line",
    [
        "Sources:", "Source: manual.pdf, p. 3", "**References**", "## Quellen", "[1] https://x.org/a", "https://x.org/a",
        "1. https://x.org/a", "[^1]: Manual of the kettle, May 2023", "- [How to descale a kettle](https://x.org)",
        "[2] Annual report 2023, p. 5", "Sources: Mayo Clinic, World Health Organization", "Source: the user manual",
        "[3] https://x.org/a Manual", "Source: History of World War II", "来源：用户手册第3页",
        "Sources: [1], [2] and [4]",
    ],
)  # fmt: skip
def test_a_list_of_sources_states_nothing(line):
    assert not carries_statement(line)


@pytest.mark.parametrize(
    "line",
    [
        "[1] The cup is blue",
        "[2] It holds two litres.",
        "Sources of heat are lamps.",
        "See https://x.org for prices.",
    ],
)
def test_a_statement_about_sources_or_behind_a_marker(line):
    assert carries_statement(line)


LIES = ["the guarantee is void after one day", "The guarantee ends after one day"]


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize(
    "form",
    [
        "It is red.[^1]\n\n[^1]: {}.", "It is red.\n\nSource: {}", "It is red.\nReferences: {}.",
        "It is red.\n[{}](https://x.org)", "It is red (source: {}).", "It is red 【1†{}】.", "It is red [doc 1, {}].",
        "It is red.\n[1] {} https://x.org", "It is red. <b {}>", "It is red <sup {}>1</sup>.", "Did you know that {}?",
        "Are you aware {}?", "Isn't it so that {}?", "{}, right?", "{}, isn't it?", "Wussten Sie, dass {}?",
        "It is red.\n## {}",
    ],
)  # fmt: skip
def test_what_layout_and_citations_assert_is_asked_about(form, lie):
    """Each content word of it is compared with the context, as part of a statement."""
    context = IndexedContext([Chunk(id=0, text="It is red.")])
    keys = set()
    for sentence in split_answer(form.format(lie)).stating:
        keys |= Comparison(sentence.text, context).keys
    assert Comparison(lie, context).keys <= keys


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        ("Is it blue?", True), ("So, is it blue?", True),
        ("If it is blue, would you like it?", True),
        ("Did you hear about it?", True), ("Und welcher ist blau?", True), ("¿La tetera es azul?", True),
        ("Votre bouilloire est-elle bleue ?", True), ("真的吗？", True),
        ("The kettle is blue?", False), ("It'll be blue?", False),
        ("Kettles are blue, do you like them?", False), ("Der Kessel ist blau?", False),
        ("¿Sabía usted que la tetera es azul?", False), ("Saviez-vous que la bouilloire est bleue ?", False),
        ("水壶是蓝色的，对吗？", False), ("青いことをご存じですか？", False), ("क्या आप जानते हैं कि यह नीली है?", False),
    ],
)  # fmt: skip
def test_a_question_that_asserts(question, asks):
    """One that only asks states nothing; one in the order of a statement, or that asks whether it is known, does."""
    assert carries_statement(question) is not asks
