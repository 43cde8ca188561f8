"""What little the features know of single languages: function words, negations, number words, months, stemmers.

The lists are short on purpose. They decide which words carry content; a language without a list is still read, only
with its function words counted as content. Number words are read by table: the libraries that parse them
(number-parser, text2num) need the language told and weigh more than what they would add here.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Protocol

import snowballstemmer

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENGLISH = """a about above across after again all also although am among an and any are as at be became because become
been before being below between both but by can could did do does doing down during each either else even ever every few
for from further had has have having he hence her here hers him his how however i if in into is it its itself just like
made make makes many may me might more moreover most much must my of off often on once one only onto or other others our
out over own per rather same several shall she should since so some such than that the their them then there therefore
these they this those through thus to too toward towards under until up upon us use used using very via was we well were
what when where whether which while who whom whose why will with within would yet you your additionally overall
furthermore
finally firstly secondly lastly"""
# Words with which answers speak about the text they answer from.
_ENGLISH_FRAME = """passage passages context provided given based according mentioned mention mentions article document
documents text answer question information stated states summary conclusion specified specific provide provides example
include includes including"""
_FRENCH = """à afin ai ainsi alors après au aucun aussi autre autres aux avaient avait avant avec avoir ayant c ce ceci
cela celle celles celui ces cet cette ceux chaque chez comme d dans de depuis des dès deux donc dont du elle elles en
encore entre est et étaient était étant été être eu eux fait font furent fut il ils j je l la le les leur leurs lors
lorsque lui m ma mais me même mes moi mon n nos notre nous on ont ou où par parce pendant peu peut plus pour pourquoi
puis qu quand que quel quelle quelles quels qui quoi s sa se selon sera seront ses si soit son sont sous sur t ta tandis
te tes toi ton tous tout toute toutes très tu un une vers vos votre vous y contexte passage texte document"""
_GERMAN = """ab aber alle allem allen aller alles als also am an ander andere anderen auch auf aus bei beim bereits bin
bis bist da dabei dadurch daher damit dann darauf das dass dazu dem den denn der deren des dessen dich die dies diese
diesem diesen dieser dieses dir doch dort du durch ein eine einem einen einer eines er es etwa etwas euch für gegen
gewesen hab habe haben hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in indem ins ist
ja jede jedem jeden jeder jedes jene jetzt kann können könnte man mehr mein meine mich mir mit muss müssen nach noch nun
nur ob oder ohne sehr sein seine seinem seinen seiner seit sich sie sind so sogar solche soll sollte sondern sowie über
um und uns unser unter vom von vor während war waren warum was weil weiter welche welcher wenn wer werde werden wie
wieder will wir wird wo wurde wurden zu zum zur zwar zwischen laut text kontext dokument"""
_SPANISH = """a al algo algunos ante antes aquel aquella así aun aunque cada casi como con contra cual cuales cuando de
del desde donde dos durante e el él ella ellas ellos en entre era eran es esa esas ese eso esos esta está están estas
este esto estos fue fueron ha había habían han hasta hay la las le les lo los más me mi mientras mucho muy o os otra
otras otro otros para pero poco por porque pues que qué quien se sea según ser si sido sin sobre son su sus también
tanto te tiene tienen toda todas todo todos tras tu un una uno unos y ya yo texto contexto"""
_ITALIAN = """a abbia ad agli ai al alla alle allo anche ancora aveva avevano c che chi ci come con contro cui da dagli
dai dal dalla dalle dallo degli dei del della delle dello di dopo dove e è ed era erano essere fra fu furono gli ha
hanno i il in io l la le lei lo loro lui ma mentre mi molto ne negli nei nel nella nelle nello noi o ogni per perché più
poi prima quale quali quando quanto quella quelle quelli quello questa queste questi questo se secondo si sia sono sopra
sotto stata state stati stato su sua sue sugli sui sul sulla sulle suo suoi tra tutti tutto un una uno vi voi"""
_PORTUGUESE = """a ainda ao aos aquela aquele as às até cada com como da das de dela dele deles depois desde do dos e é
ela elas ele eles em entre era eram essa essas esse esses esta está estão estas este estes eu foi foram há isso isto já
lhe mais mas me mesmo muito na nas no nos nós num numa o onde os ou para pela pelas pelo pelos por porque quais qual
quando que quem são se segundo sem ser seu seus sido sob sobre sua suas também tem têm tinha todas todo todos um uma
umas uns"""
_DUTCH = """aan al alle als bij daar dan dat de der deze die dit doen door dus een en er ge geen had hadden heb hebben
heeft hem het hier hij hoe hun ik in is ja je kan kon kunnen maar me meer men met mij na naar nog nu of om omdat onder
ons ook op over reeds te tegen toen tot uit van veel voor waren was wat we wel werd werden wie wij wil worden wordt zal
ze zelf zich zij zijn zo zonder zou"""

# Words that carry content but say little: an answer may add them without adding a claim.
_LIGHT = """additional advisable aim allow allows allowing another appear appears appropriate approximately area
around aspect aspects associated assist brief briefly call called certain choose clear clearly come consider
considered crucial depend depending depends describe described describes desired detail detailed details determine
different difficult directly due ensure ensures ensuring essential explain explained explains explicitly factor
factors find focus follow followed following follows general generally guidance guide hand help helpful helps
highlight highlights hope hopefully important importantly indicate indicates individual individuals instruction
instructions involve involved involves keep key know known let likely main mainly make maintain makes making mean
means necessary need needed needs note noted offer offers option options order outline outlined overall part
particular particularly play please point points possible potential potentially proper properly purpose question range
recommend recommended refer refers regarding regular related relevant require required requires role say says seem
seems significant significantly similar similarly simply situation sometimes start still suggest suggests suitable
summarize summary sure take takes thing things throughout type types typical typically ultimately unclear understand
usually variety various vary way ways worth"""

STOP_WORDS: dict[str, frozenset[str]] = {
    "english": frozenset(f"{_ENGLISH} {_ENGLISH_FRAME}".split()),
    "french": frozenset(_FRENCH.split()),
    "german": frozenset(_GERMAN.split()),
    "spanish": frozenset(_SPANISH.split()),
    "italian": frozenset(_ITALIAN.split()),
    "portuguese": frozenset(_PORTUGUESE.split()),
    "dutch": frozenset(_DUTCH.split()),
}
_NEGATIONS = {
    "english": "not no never none nobody nothing neither nor cannot without unable lack lacks fail",
    "french": "pas ne jamais aucun aucune rien personne ni sans non",
    "german": "nicht kein keine keinen keinem keiner nie niemals nichts niemand weder ohne",
    "spanish": "no nunca jamás ningún ninguna ninguno nada nadie ni sin tampoco",
    "italian": "non mai nessun nessuno nessuna niente nulla né senza",
    "portuguese": "não nunca jamais nenhum nenhuma nada ninguém nem sem",
    "dutch": "niet geen nooit niemand niets noch zonder",
}
NEGATIONS = {language: frozenset(words.split()) for language, words in _NEGATIONS.items()}
# From two on: the words for one are articles in most languages.
_NUMBER_WORDS = {
    "english": "two three four five six seven eight nine ten eleven twelve",
    "french": "deux trois quatre cinq six sept huit neuf dix onze douze",
    "german": "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    "spanish": "dos tres cuatro cinco seis siete ocho nueve diez once doce",
    "italian": "due tre quattro cinque sei sette otto nove dieci undici dodici",
    "portuguese": "dois três quatro cinco seis sete oito nove dez onze doze",
    "dutch": "twee drie vier vijf zes zeven acht negen tien elf twaalf",
}
NUMBER_WORDS: dict[str, dict[str, int]] = {
    language: {word: i for i, word in enumerate(words.split(), start=2)} for language, words in _NUMBER_WORDS.items()
}
NUMBER_WORDS["english"] |= {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
MAGNITUDES: dict[str, int] = {
    "thousand": 10**3, "mille": 10**3, "tausend": 10**3, "mil": 10**3, "mila": 10**3, "duizend": 10**3,
    "million": 10**6, "millions": 10**6, "mn": 10**6, "millionen": 10**6, "millón": 10**6, "millones": 10**6,
    "milioni": 10**6, "milhões": 10**6, "miljoen": 10**6,
    "billion": 10**9, "billions": 10**9, "bn": 10**9, "milliard": 10**9, "milliards": 10**9, "milliarde": 10**9,
    "milliarden": 10**9, "miljard": 10**9, "miliardi": 10**9,
    "trillion": 10**12,
}  # fmt: skip
DECIMAL_COMMA = frozenset({"french", "german", "spanish", "italian", "portuguese", "dutch", "russian"})
_SCRIPTS = {"CYRILLIC": "russian", "GREEK": "greek", "ARABIC": "arabic", "DEVANAGARI": "hindi", "TAMIL": "tamil",
            "ARMENIAN": "armenian", "HEBREW": "hebrew"}  # fmt: skip


_LISTED_IN = {
    word: [i for i, listed in enumerate(STOP_WORDS.values()) if word in listed]
    for word in frozenset().union(*STOP_WORDS.values())
}
"""Languages by function word, as their places in `STOP_WORDS`."""


def guess_language(words: Sequence[str], script: str) -> str:
    """Name of the language whose function words occur most among lower-case ``words``; by script for the rest.

    ``script`` is the first word of the Unicode name of the commonest letters. ``other`` where neither tells; English
    for a few words of which none is listed.
    """
    if script in _SCRIPTS:
        return _SCRIPTS[script]
    hits = [0] * len(STOP_WORDS)
    counts = Counter(words)
    for word in counts.keys() & _LISTED_IN.keys():
        for i in _LISTED_IN[word]:
            hits[i] += counts[word]
    most = max(hits)
    if script != "LATIN" or (len(words) >= 20 and most < 0.15 * len(words)):
        return "other"
    return list(STOP_WORDS)[hits.index(most)] if most else "english"


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...


_stemmers: dict[str, _Stemmer | None] = {}
_lock = threading.Lock()


def stem(word: str, language: str) -> str:
    """The word's stem; in a language without a stemmer its first two thirds, which most inflection leaves alone."""
    with _lock:  # a snowball stemmer keeps the word it works on in itself
        if language not in _stemmers:
            known = language in snowballstemmer.algorithms()
            _stemmers[language] = snowballstemmer.stemmer(language) if known else None
        stemmer = _stemmers[language]
        return stemmer.stemWord(word) if stemmer else word[: max(4, round(len(word) * 2 / 3))]


LIGHT_WORDS: dict[str, frozenset[str]] = {"english": frozenset(stem(word, "english") for word in _LIGHT.split())}
"""Stems whose absence from the context is not counted as novelty."""
