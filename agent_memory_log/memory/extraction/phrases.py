r"""The phrases by which users state things, in a few languages: data for ``statements``.

A pattern stands at the beginning of a clause. What it takes out are named groups: ``value``; ``other``, what the value
is to be used in place of; ``never``, for a habit that is denied. To add a language: its ``Phrases`` here, its cases in
``tests/memory/test_extraction_statements.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

Topic = Literal["prefers", "habit", "instead", "called", "language", "name", "user_id", "email", "home"]
"""What a phrase is about."""

LANGUAGES = {
    "english": "english", "englisch": "english", "inglés": "english", "anglais": "english",
    "german": "german", "deutsch": "german", "alemán": "german", "allemand": "german",
    "spanish": "spanish", "spanisch": "spanish", "español": "spanish", "castellano": "spanish", "espagnol": "spanish",
    "french": "french", "französisch": "french", "francés": "french", "français": "french",
    "italian": "italian", "italienisch": "italian", "italiano": "italian", "italien": "italian",
    "portuguese": "portuguese", "portugiesisch": "portuguese", "portugués": "portuguese", "portugais": "portuguese",
    "dutch": "dutch", "niederländisch": "dutch", "neerlandés": "dutch", "néerlandais": "dutch",
    "polish": "polish", "polnisch": "polish", "polaco": "polish", "polonais": "polish",
    "russian": "russian", "russisch": "russian", "ruso": "russian", "russe": "russian",
    "ukrainian": "ukrainian", "ukrainisch": "ukrainian", "ucraniano": "ukrainian", "ukrainien": "ukrainian",
    "turkish": "turkish", "türkisch": "turkish", "turco": "turkish", "turc": "turkish",
    "chinese": "chinese", "chinesisch": "chinese", "chino": "chinese", "chinois": "chinese",
    "japanese": "japanese", "japanisch": "japanese", "japonés": "japanese", "japonais": "japanese",
    "korean": "korean", "koreanisch": "korean", "coreano": "korean", "coréen": "korean",
    "arabic": "arabic", "arabisch": "arabic", "árabe": "arabic", "arabe": "arabic",
    "hindi": "hindi",
}  # fmt: skip
"""What languages are called, and the one name each is remembered by."""


class Caseless:
    """A pattern that stands in any case, looked for in a third of the time where the text is ASCII, as most are.

    Its source has no capital letters: an ASCII text in lower case is searched as it is, at the same places.
    """

    __slots__ = ("_any", "_lower")

    def __init__(self, source: str) -> None:
        self._lower = re.compile(source)
        self._any = re.compile(source, re.IGNORECASE)

    def search(self, text: str) -> re.Match[str] | None:
        """The first place where it stands."""
        return self._lower.search(text.lower()) if text.isascii() else self._any.search(text)

    def finditer(self, text: str, start: int) -> Iterator[re.Match[str]]:
        """All places from ``start`` on."""
        return self._lower.finditer(text.lower(), start) if text.isascii() else self._any.finditer(text, start)


class Phrases(msgspec.Struct, frozen=True):
    """One language's.

    - ``hints``: lower-case text of which some must be there, or none of the patterns can match.
    - ``patterns``: what is stated, and how, at the beginning of a clause; ``openers``: what may stand before it.
    - ``joint``: what begins another clause.
    - ``unreal``: makes a whole sentence something that is not the case. ``reported``: before a phrase, says that it is
      somebody else's.
    - ``end``: where a value ends. ``passing``: in a value, ties it to this conversation.
    """

    hints: tuple[str, ...]
    openers: re.Pattern[str]
    joint: Caseless
    unreal: Caseless
    reported: Caseless
    end: Caseless
    passing: Caseless
    patterns: tuple[tuple[Topic, re.Pattern[str]], ...]

    def may_stand_in(self, plain: str) -> bool:
        """Whether one of the patterns could match in a text that ``plain_form`` made: cheap, as most states nothing."""
        for hint in self.hints:  # noqa: SIM110  # twice as fast as any(), and each user message passes here
            if hint in plain:
                return True
        return False


def plain_form(text: str) -> str:
    """A text in lower case, with single blanks."""
    return " ".join(text.lower().split())


def _words(text: str) -> Caseless:
    return Caseless(rf"\b(?:{'|'.join(text.split())})\b".replace("_", r"\s"))


def _openers(text: str) -> re.Pattern[str]:
    longest_first = "|".join(sorted(text.split(), key=len, reverse=True))
    return re.compile(rf"(?:(?:{longest_first})\b[,:.!]?\s+){{0,4}}".replace("_", r"\s"), re.IGNORECASE)


def _joint(text: str) -> Caseless:
    return Caseless(rf"[,;\u2013\u2014(]\s+|\s-\s|\b(?:{'|'.join(text.split())})\s+")


def _pattern(text: str) -> re.Pattern[str]:
    """Blanks stand for white space; that a value is capitalised is asked for where it is read, not here."""
    return re.compile(text.replace(" ", r"\s+"), re.IGNORECASE)


_REST = r"(?P<value>\S.*)"
_ID = r"(?P<value>(?=\S*[0-9_])[\w.@-]{3,60})"
_EMAIL = r"(?P<value>[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+)"
_OFTEN = r"(?:(?:actually|also|really|generally|usually|typically|normally|currently|strongly|much|still) )?"

# What somebody does as a habit, or asks for as one. Other verbs after "always" and "never" tell what happened
# ("I never received it") or how it feels ("always happy to help").
_HABITS = (
    r"(?:use|prefer|want|like|fly|book|travel|eat|drink|write|work|choose|pick|take|pay|sit|run|read|avoid|wear|order"
    r"|buy|drive|deploy|commit|test|keep|watch|cook|sleep|code|format|review|schedule|meet)"
)
_ORDERS = (
    r"(?:use|answer|reply|respond|write|format|show|include|ask|check|run|keep|put|give|send|add|start|begin|end|book"
    r"|prefer|cite|explain|avoid|deploy|commit|push|merge|test|speak|be|make|sign|wait|confirm|tell|provide|translate"
    r"|round|sort|summarize|summarise|address|delete|remove|change|touch|edit|install|quote|mention|assume|call)"
)

ENGLISH = Phrases(
    hints=(
        "prefer", "always", "never", "call me", "calls me", "go by", "instead", ", not ", "name", "live in", "answer",
        "reply", "respond", "write", "speak", "talk", "my user", "my email", "my e-mail",
    ),
    openers=_openers(
        "and but also so then actually no nope yes yeah ok okay oh sure well alright right great hi hello hey sorry"
        " thanks thank_you please btw by_the_way note note_that remember remember_that in_general generally from_now_on"
        " going_forward in_future in_the_future for_the_future for_future_reference of_course just"
    ),
    joint=_joint("and but"),
    unreal=_words(
        "if unless whether suppose supposing imagine assume assuming pretend hypothetically maybe perhaps"
        " for_example e\\.g wish wonder might used_to what_would as_though as_if let's_say would_say could_say"
    ),
    reported=Caseless(
        r"\b(?:said|says|say|saying|told|tells|wrote|writes|written|asked|asks|according|quote|quoted|claims?|claimed"
        r"|thinks?|thought|believes?|believed|reads|means?|translate|titled|called)\b",
    ),
    end=Caseless(
        r",\s+(?:and|but|so|because|since|as|please|thanks|thank|which|though|although|can|could|would|do|is|i|i'm"
        r"|never|always|or\s+else)\b|\s+(?:because|since|but|so\s+that|though|although|as\s+(?:i|it|that|they)"
        r"|and\s+(?:i|i'm|i'd|my|please|then|am|also|can|could))\b|\s+(?:please|thanks|thank\s+you)$|\s[\u2013\u2014-]\s|;|\s\(",
    ),
    passing=Caseless(
        r"\b(?:^(?:that|what|not|so|either|neither|both|any)\b|(?:this|these|those|it|them|him|her|today|tonight|tomorrow"
        r"|now|here|original|current|next|above|below|previous|earlier|same|one|ones|former|latter|first|second|third"
        r"|option|again|your|yours|instead|another|transferred|just)\b|that$|that's\b|(?:january|february|march"
        r"|april|may|june|july|august|september|october|november|december)\s+\d|\d+(?:st|nd|rd|th)\b)",
    ),
    patterns=(
        ("called", _pattern(r"(?:I(?:'d| would)? (?:prefer|like) to be called|I go by) (?P<value>\S.*)")),
        ("called", _pattern(r"(?:you can |you may |everyone )?(?:just )?call(?:s)? me (?P<value>\S.*)")),
        ("prefers", _pattern(rf"I {_OFTEN}prefer {_REST}")),
        ("prefers", _pattern(rf"my (?:strong )?preference is (?:for )?{_REST}")),
        ("language", _pattern(r"(?:always )?(?:answer|reply|respond|write|speak|talk)(?: to)?(?: me)? (?:back )?"
                              r"(?:only )?in (?P<value>\w+)(?: only| please| from now on)?$")),
        ("habit", _pattern(rf"I (?:always|(?P<never>never)) (?P<value>{_HABITS}\b.*)")),
        ("habit", _pattern(rf"(?:always|(?P<never>never)) (?P<value>{_ORDERS}\b.*)")),
        ("habit", _pattern(rf"you (?:should|must) (?:always|(?P<never>never)) (?P<value>{_ORDERS}\b.*)")),
        ("instead", _pattern(r"use (?P<value>\S.{0,80}?) instead of (?P<other>\S.*)")),
        ("instead", _pattern(r"use (?P<value>\S[^,]{0,80}?), not (?P<other>\S.*)")),
        ("instead", _pattern(r"instead of (?P<other>\S[^,]{0,80}?), use (?P<value>\S.*)")),
        ("instead", _pattern(r"use (?P<value>\S.{0,80}?) instead(?: please)?$")),
        ("name", _pattern(r"my (?:full |first )?name(?: is|'s) (?P<value>\S.*)")),
        ("home", _pattern(rf"I {_OFTEN}live in (?P<value>\S.*)")),
        ("user_id", _pattern(rf"my (?:user\s?id|user\s?name)(?: is|'s|:) {_ID}")),
        ("email", _pattern(rf"my e-?mail(?: address)?(?: is|'s|:) {_EMAIL}")),
    ),
)  # fmt: skip

GERMAN = Phrases(
    hints=(
        "bevorzuge", "immer", " nie", "nenn", "statt", "mein name", "heiße", "wohne", "antworte",
    ),
    openers=_openers("und aber also nein ja ok okay hallo hi bitte übrigens ab_jetzt in_zukunft künftig grundsätzlich"),
    joint=_joint("und aber"),
    unreal=_words("wenn falls ob angenommen würde würden hätte vielleicht zum_beispiel beispielsweise"),
    reported=_words("sagt sagte sagen gesagt schreibt schrieb laut meint meinte behauptet übersetze"),
    end=Caseless(r",\s|\s+(?:weil|denn|aber|und\s+(?:ich|mein|bitte))\b|;|\s\(|\s[\u2013\u2014-]\s"),
    passing=Caseless(
        r"\b(?:dies\w*|das|es|ihn|ihm|heute|morgen|jetzt|hier|aktuell\w*|nächst\w*|letzt\w*|gleich\w*|erst\w*|zweit\w*"
        r"|dritt\w*|option|wieder|nochmal|dein\w*|ihr\w*)\b",
    ),
    patterns=(
        ("prefers", _pattern(rf"ich bevorzuge {_REST}")),
        ("called", _pattern(r"(?:nenn|nenne|nennen Sie) mich (?:bitte )?(?P<value>\S.*)")),
        ("name", _pattern(r"(?:ich heiße|mein name ist) (?P<value>\S.*)")),
        ("home", _pattern(r"ich wohne in (?P<value>\S.*)")),
        ("language", _pattern(r"antworte(?:n Sie)?(?: mir)?(?: bitte)?(?: immer)?(?: nur)? (?:auf|in) "
                              r"(?P<value>\w+)$")),
        ("habit", _pattern(r"ich (?:verwende|nutze|benutze|esse|trinke|fliege) (?:immer|(?P<never>nie|niemals)) "
                           r"(?P<value>\S.*)")),
        ("instead", _pattern(r"(?:verwende|nutze|benutze|nimm) (?P<value>\S.{0,80}?) statt (?P<other>\S.*)")),
    ),
)  # fmt: skip

SPANISH = Phrases(
    hints=(
        "prefiero", "llámame", "llamame", "llámeme", "llameme", "me llamo", "mi nombre", "vivo en", "responde",
        "responda", "respóndeme", "conteste", "contesta", "contéstame", "en lugar",
    ),
    openers=_openers("y pero no sí hola bueno gracias por_favor además a_partir_de_ahora en_general"),
    joint=_joint("y pero"),
    unreal=_words("si ojalá quizás quizá imagina supongamos por_ejemplo"),
    reported=_words("dice dijo dicen dicho según escribe escribió preguntó traduce"),
    end=Caseless(
        r",\s|\s+(?:porque|pero|ya\s+que|por\s+favor|y\s+(?:yo|me|mi|no))\b|;|\s\(|\s[\u2013\u2014-]\s",
    ),
    passing=Caseless(
        r"^(?:que|no)\b|\b(?:est[aeo]s?|es[aeo]s?|hoy|mañana|ahora|aquí|actual\w*|próxim\w*|últim\w*|mism\w*|primer\w*"
        r"|segund\w*|tercer\w*|opción|otra\s+vez|tus?|sus?)\b",
    ),
    patterns=(
        ("prefers", _pattern(rf"(?:yo )?prefiero {_REST}")),
        ("called", _pattern(r"ll[aá]m[ae]me (?P<value>\S.*)")),
        ("name", _pattern(r"(?:me llamo|mi nombre es) (?P<value>\S.*)")),
        ("home", _pattern(r"(?:yo )?vivo en (?P<value>\S.*)")),
        ("language", _pattern(r"(?:respond[ea]|contest[ae]|respóndeme|contéstame)(?: siempre)?(?: solo)? en "
                              r"(?P<value>\w+)(?:,? por favor)?$")),
        ("instead", _pattern(r"us[ae] (?P<value>\S.{0,80}?) en lugar de (?P<other>\S.*)")),
    ),
)  # fmt: skip

FRENCH = Phrases(
    hints=(
        "préfère", "appel", "mon nom", "habite", "répond", "au lieu", "j'utilise",
    ),
    openers=_openers("et mais non oui bonjour salut merci alors désormais en_général s'il_te_plaît s'il_vous_plaît"),
    joint=_joint("et mais"),
    unreal=_words("si imagine imaginons imaginez supposons peut-être par_exemple"),
    reported=_words("dit disait disent selon écrit demande prétend traduis traduisez"),
    end=Caseless(
        r",\s|\s+(?:parce\s+que|car|mais|s'il\s+(?:te|vous)\s+plaît|et\s+(?:je|j'\w+|mon|ma))\b|;|\s\(|\s[\u2013\u2014-]\s",
    ),
    passing=Caseless(
        r"^(?:que|ne)\b|\b(?:ce|cet|cette|ces|ça|cela|celui\S*|celle\S*|aujourd'hui|demain|maintenant|ici|actuel\w*"
        r"|prochain\w*|dernier\w*|dernière\w*|même\w*|premi\w+|second\w*|deuxième|troisième|option|encore|ton|ta|tes"
        r"|votre|vos)\b",
    ),
    patterns=(
        ("prefers", _pattern(rf"je préfère {_REST}")),
        ("called", _pattern(r"appel(?:le|ez)-moi (?P<value>\S.*)")),
        ("name", _pattern(r"(?:je m'appelle|mon nom est) (?P<value>\S.*)")),
        ("home", _pattern(r"j'habite (?:à|au|en) (?P<value>\S.*)")),
        ("language", _pattern(r"répond(?:s|ez)(?:-moi)?(?: toujours)? en (?P<value>\w+)"
                              r"(?:,? s'il (?:te|vous) plaît)?$")),
        ("habit", _pattern(r"j'utilise toujours (?P<value>\S.*)")),
        ("instead", _pattern(r"utilise[sz]? (?P<value>\S.{0,80}?) au lieu d(?:e |')(?P<other>\S.*)")),
    ),
)  # fmt: skip

ALL = (ENGLISH, GERMAN, SPANISH, FRENCH)
