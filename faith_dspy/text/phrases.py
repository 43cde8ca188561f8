"""What answers say that asserts nothing, by language: refusals, apologies, greetings, headings."""

from __future__ import annotations

from typing import NamedTuple


class Phrases(NamedTuple):
    """What answers in a language say that asserts nothing. Verbose regular expressions, case ignored."""

    sorry: str
    """An apology: a sentence of its own, or what a declining clause begins with."""
    declines: str
    """How a clause begins that says the answer cannot be given."""
    goes_on: str
    """Where another clause begins, which has to decline as well."""
    greets: str
    """A greeting, thanks or a farewell; the whole sentence."""


_STOPS = r"[;:–—](?=\s*\w) | \s-\s"
PHRASES: dict[str, Phrases] = {
    "english": Phrases(
        sorry=r"i['’]?m\s+(?:very\s+)?sorry|i\s+am\s+sorry|sorry|unfortunately|i\s+apologi[sz]e",
        declines=r"""(?:based\s+on\s+[\w\s]{1,40},\s*)?
    (?:
      (?:i['’]m\s+unable|(?:i|we)\s+
        (?:do\s+not|don['’]?t|can\s?not|can['’]?t|am\s+unable|could\s?n[o'’]t|could\s+not|are\s+unable))\b
        (?:(?!\b(?:but|and|because)\b)[^,;:]){0,60}?\b
        (?:know|answer|find|determine|say|tell|information|sure|(?:help|assist)(?:\s+you)?\s+with\s+th(?:is|at))\b
    | (?:unable|impossible)\s+to\s+(?:answer|determine|say|tell)\b
    | (?:the|this|these|none\s+of\s+the)?\s*(?:provided\s+|given\s+)?
        (?:context|documents?|passages?|sources?|text|information)\s+(?:provided\s+|given\s+)?
        (?:(?:do|does|did)\s*(?:not|n['’]t)\s+(?:\w+\s+){0,2}?(?:say|state|mention|contain|provide|include|answer|specify)
         |(?:is|are)\s+(?:not\s+enough|insufficient|silent))
    | there\s+is\s+(?:no|not\s+enough)\s+(?:information\b|evidence\s+(?:in|within)\b)
    )""",
        goes_on=r"""[;:–—](?=\s*\w) | \s-\s
    | \b(?:but|however|although|though|yet|nevertheless|still|except|whereas|while|therefore|thus|because|since)\b
    | ,\s*(?:so|and|it|they)\b
    | \band\s+(?:it|they|he|she|you|is|was|are|were|has|had|states?|says?|costs?)\b""",
        greets=r"(?:hi|hello|hey)(?:\s+there)?(?:[\s,]+\w+)?|good\s+(?:morning|afternoon|evening|day)"
        r"|thanks|thank\s+you(?:\s+(?:so|very)\s+much)?(?:\s+for\s+(?:asking|your\s+question))?"
        r"|you(?:['’]re|\s+are)\s+welcome"
        r"|(?:good)?bye|have\s+a\s+(?:nice|good|great)\s+day|i\s+hope\s+(?:this|that|it)\s+helps"
        r"|let\s+me\s+know\s+if\s+you\s+have\s+(?:any\s+)?(?:more\s+|other\s+|further\s+)?questions",
    ),
    "german": Phrases(
        sorry=r"(?:es\s+)?tut\s+mir\s+leid|leider|entschuldigung|verzeihung",
        declines=r"""
        (?=[^,;:]*\b(?:ich|wir|man|frage)\b)[^,;:]{0,80}?\b
          (?: (?:weiß|wissen)\b[^,;:]{0,30}\bnicht
            | (?:kann|können|konnten?)\b[^,;:]{0,80}\bnicht\b[^,;:]{0,30}
              \b(?:beantworte[nt]|sagen|finden|bestimmen|feststellen|angeben|beurteilen)) \b
        | (?:(?:de[rmn]|die|das|im|in|laut)\s+){0,2}(?:(?:bereitgestellt|gegeben|vorliegend)e[nmrs]?\s+)?
          (?:kontext|text(?:en?)?|dokument(?:en?)?|quellen?|passagen?|abschnitte?n?)\b[^,;:]{0,60}?\b
          (?: (?:enth[aä]lt(?:en)?|nenn(?:en|t)|erwähn(?:en|t)|steh(?:en|t)|gibt|sag(?:en|t)|mach(?:en|t)|liefer[nt])\b
              [^,;:]{0,60}\b(?:nicht|nichts|keine[nr]?)
            | (?:nicht|nichts|keine[nr]?)\b[^,;:]{0,60}\b(?:enthält|nennt|erwähnt|steht|sagt)) \b
        | (?:enth[aä]lt(?:en)?|nenn(?:en|t)|erwähn(?:en|t))\s+(?:(?:de[rmn]|die|das)\s+)?
          (?:(?:bereitgestellt|gegeben|vorliegend)e[nmrs]?\s+)?(?:kontext|text|dokumente?|quellen?|passagen?)\s+(?:nichts|keine[nr]?|(?:den|die|das)\b[^,;:]{0,40}\bnicht)\b
        | (?:dazu|darüber|hierzu|es)\s+(?:gibt(?:\s+es)?|liegen|liegt)(?:\s+mir)?\s+keine\s+(?:information|angabe)""",
        goes_on=_STOPS
        + r"""
        | ,?\s*\b(?:aber|jedoch|doch|allerdings|sondern|dennoch|trotzdem|obwohl|während|denn|weil|da|daher|deshalb|außer
          |und)\b
        | ,(?!\s*(?:ob|wie|was|wann|wer|wo|warum|wieso|welche[rsnm]?|dass|um|wem|wen|woher|wohin)\b)""",
        greets=r"hallo|guten\s+(?:morgen|tag|abend)|danke(?:\s+schön|\s+sehr)?|vielen\s+dank|gern(?:e)?\s+geschehen"
        r"|bitte(?:\s+schön|\s+sehr)?|auf\s+wiedersehen|tschüss|ich\s+hoffe,?\s+das\s+hilft(?:\s+ihnen|\s+dir)?",
    ),
    "french": Phrases(
        sorry=r"(?:je\s+suis\s+)?(?:vraiment\s+)?désolée?|malheureusement|je\s+m['’]excuse",
        declines=r"""
        je\s+ne\s+sais\s+pas
        | (?:je|nous|on)\s+ne\s+(?:peux|peut|pouvons|suis|sommes)\s+pas\s+(?:en\s+mesure\s+d(?:e\s+|['’]))?
          (?:répondre|dire|déterminer|trouver|savoir|préciser)
        | je\s+n['’]ai\s+pas\s+(?:trouvé|assez|d['’]informations?)
        | (?:le|les|ce|ces|la)\s+(?:contexte|documents?|textes?|passages?|sources?|extraits?)(?:\s+fournie?s?)?\s+
          (?:ne\s+|n['’])(?:contien(?:t|nent)|mentionne(?:nt)?|précise(?:nt)?|indique(?:nt)?|di(?:t|sent)|fourni(?:t|ssent)
          |donne(?:nt)?|permet(?:tent)?)\s+(?:pas|aucune?|rien)
        | il\s+n['’]y\s+a\s+(?:pas\s+d['’]|aucune\s+)informations?
        | aucune\s+information\s+n['’]est\s+(?:donnée|fournie|disponible)""",
        goes_on=_STOPS
        + r"""
        | ,?\s*\b(?:mais|cependant|toutefois|pourtant|néanmoins|bien\s+que|sauf|tandis|donc|car|parce|puisque|et)\b
        | ,""",
        greets=r"bonjour|bonsoir|salut|merci(?:\s+beaucoup)?|de\s+rien|au\s+revoir|je\s+vous\s+en\s+prie"
        r"|j['’]espère\s+que\s+cela\s+(?:vous\s+)?aide",
    ),
    "spanish": Phrases(
        sorry=r"lo\s+siento|lamentablemente|desafortunadamente|disculp[ae]",
        declines=r"""
        no\s+(?:lo\s+)?sé\b
        | no\s+(?:puedo|podemos|es\s+posible|se\s+puede)\s+
          (?:responder|contestar|determinar|saber|decir|encontrar|precisar)
        | no\s+(?:tengo|tenemos|hay|dispongo\s+de|encuentro|se\s+proporciona)\s+(?:suficiente\s+)?(?:información|datos)
        | (?:el|los|la|las|este|estos)\s+(?:contexto|documentos?|textos?|pasajes?|fuentes?)(?:\s+proporcionad[oa]s?)?\s+
          no\s+(?:contienen?|mencionan?|indican?|dicen?|proporcionan?|especifican?|incluyen?)""",
        goes_on=_STOPS
        + r"""
        | ,?\s*\b(?:pero|sin\s+embargo|aunque|no\s+obstante|salvo|mientras|porque|ya\s+que|pues|así\s+que|y)\b
        | ,""",
        greets=r"hola|buen(?:os|as)\s+(?:días|tardes|noches)|(?:muchas\s+)?gracias|de\s+nada|adiós"
        r"|espero\s+que\s+(?:esto\s+)?(?:te\s+|le\s+)?ayude",
    ),
    "chinese": Phrases(
        sorry=r"(?:很|非常)?(?:抱歉|遗憾)|对不起|不好意思",
        declines=r"""
        (?:根据[^，。,]{0,15}[，,])?
        (?: (?:我们?)?(?:不知道|不清楚|无法(?:回答|确定|判断|得知)|不能(?:回答|确定)|找不到)
          | (?:没有?|未)提[到及]
          | (?:所?(?:提供|给出?)的?)?(?:上下文|文本|文章|文档|资料|材料|原文|段落|文)(?:中|里)?(?:并)?
            (?:没有?|未|不)(?:提到|提及|提供|说明|包含|给出|涉及))""",
        goes_on=r"但|不过|然而|因此|所以|因为|而|[，；：,;:]",
        greets=r"(?:你|您|大家)好|(?:早上|下午|晚上)好|谢谢(?:你|您|大家)?|不客气|再见|希望(?:这|对[你您])+(?:有所?帮助)",
    ),
    "japanese": Phrases(
        sorry=r"申し訳(?:ありません|ございません)|すみません|残念ながら",
        declines=r"""
        が?[、,]?(?:(?:提供された)?(?:コンテキスト|文書|文脈|資料|本文|文章)(?:の中)?(?:に|で|から)は?[、,]?)?
        (?: (?:(?:その|この)?(?:答え|回答|質問|点|それ)(?:に(?:ついて)?)?は?|私に?は|よく)*
            (?:わかりません|分かりません|(?:お?答え(?:でき|られ)|回答でき|判断でき)ません)
          | [^、。]{0,40}(?:記載|言及|情報)(?:が|は)
            (?:ありません|(?:提供)?されていません|含まれていません|見つかりません))""",
        goes_on=r"しかし|ただし|けれど|ので|から|が|[、；：,;:]",
        greets=r"こんにちは|こんばんは|おはようございます|ありがとう(?:ございます)?|どういたしまして|さようなら",
    ),
    "hindi": Phrases(
        sorry=r"क्षमा\s+करें|माफ़?\s+(?:करें|कीजिए)|मुझे\s+खेद\s+है",
        declines=r"""
        (?:मुझे|हमें)\s+(?:(?:यह|इसका\s+उत्तर|इस\s+बारे\s+में)\s+)?(?:नहीं\s+(?:पता|मालूम)|(?:पता|मालूम)\s+नहीं)
        | मैं\s+[^,;।]{0,60}(?:उत्तर|जवाब)\s+नहीं\s+दे\s+सक
        | (?:दिए\s+गए\s+)?(?:संदर्भ|दस्तावेज़?|पाठ|लेख)\s+में\s+[^,;।]{0,80}(?:जानकारी|उल्लेख)\s+नहीं""",
        goes_on=r"लेकिन|परंतु|परन्तु|किंतु|मगर|हालाँकि|क्योंकि|\sऔर\s|[,;:–—]",
        greets=r"नमस्ते|नमस्कार|धन्यवाद|शुक्रिया|आपका\s+स्वागत\s+है|अलविदा",
    ),
    "arabic": Phrases(
        sorry=r"عذر[اً]+|آسف|أعتذر|للأسف|معذرة",
        declines=r"""
        لا\s+(?:أعرف|أعلم|أدري)
        | لا\s+(?:أستطيع|يمكنني|يمكن)\s+(?:الإجابة|تحديد|معرفة|القول)
        | (?:لا\s+[يت](?:ذكر|حتوي|تضمن|وفر)|لم\s+[يت](?:ذكر|رد))\s+(?:في\s+)?(?:هذا\s+)?(?:السياق|النص|المستند|الوثيقة)
        | (?:السياق|النص|المستند|الوثيقة)\s+(?:المقدم\s+)?(?:لا|لم)\s+[يت](?:ذكر|حتوي|تضمن|وفر)
        | لا\s+[يت]وجد\s+(?:أي\s+)?معلومات""",
        goes_on=r"ولكن|لكن|غير\s+أن|إلا\s+أن|لأن|\sو\w|[،؛,;:–—]",
        greets=r"مرحب[اً]+|أهل[اً]+(?:\s+وسهل[اً]+)?"
        r"|السلام\s+عليكم|شكر[اً]+(?:\s+(?:لك|جزيل[اً]+))?|عفو[اً]+|مع\s+السلامة|وداع[اً]+",
    ),
}
_STATING = """am are be been can could did do does had has have is may might must shall should was were will would darf
hat hatte haben ist kann muss sind war waren wird werden a ont est sont était étaient peut ha han hay es son era fue
está están puede tiene tienen"""
STATING = frozenset(_STATING.split())
"""Verbs with which a short line that ends in a colon may yet assert something, beside announcing what follows."""
