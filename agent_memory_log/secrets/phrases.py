"""Secrets that a phrase, a command or a header gives away: one-time codes, ``curl -u``, ``Authorization: Basic``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from agent_memory_log.secrets.reading import Reading
from agent_memory_log.secrets.values import MADE_UP, NOT_SECRET, RANDOM, WORD, strength

_LEAD = 32
_LONG_LEAD = 90
_QUOTES = frozenset("'\"")
_ANY = NOT_SECRET
_LIST = -1


class Phrase(NamedTuple):
    """A phrase with a secret in it: where ``hint`` stands in the lower-case text, ``pattern`` is tried.

    ``before`` is what must end there, if anything. The last group of the two is the secret; ``needed`` is how much it
    must look like one. ``lead`` is how many characters ``before`` may match.
    """

    kind: str
    hint: str
    before: re.Pattern[str] | None
    pattern: re.Pattern[str]
    needed: int
    lead: int


_IS = (
    r"(?:'s| is| are| will be| was| es| est(?: le)?| c'est| ist| sind| lautet| è| é| är| er|:| =|=| -|は|是){1,2}"
    r"[ \t\"'(]{0,3}"
)
_FOR = (
    r"(?: (?:for|to|of|on|at|from|del?|du|de la|meine[rs]?|für|der|des|da|do|di|dell[ae]|voor|van)"
    r" [^\n.,;:!?=\"]{1,30}?)?"
)
_DIGITS = r"([0-9]{4,8}\b#?|[0-9]{3}[ -][0-9]{3}\b)"
_CODE = r"([0-9]{3}[ -][0-9]{3}\b|(?=[a-z-]{0,9}[0-9])[a-z0-9]{4,10}\b#?)"
_CODE_NOUNS = "code|otp|password|código|codice|passwort|mot de passe"
_QUALIFIERS = (
    "door|gate|alarm|entry|access|garage|lock|locker|safe|keypad|building|security|verification|confirmation|login"
    "|log-in|sign-in|authentication|authorization|auth|one[- ]time|2fa|two-factor|otp|sms|unlock|pairing|phone"
)
_QUALIFIED = rf"(?<![a-z])(?:{_QUALIFIERS})(?: [a-z]{{2,10}})?[ -]?(?:pass)?"
_SENT = (
    r"(?<![a-z])your (?:(?!zip|post|area|country|error|promo|discount|coupon|status|order|booking|referral|gift|item)"
    r"[a-z-]{2,15} ){1,2}"
    "|(?:whatsapp|google|telegram|facebook|instagram|amazon|apple|microsoft|paypal|signal|steam|discord|github) "
)
_GERMAN_QUALIFIERS = (
    "einmal|bestätigungs|sicherheits|zugangs|freischalt|tür|verifizierungs|verificatie|toegangs|beveiligings"
)
_FRENCH_PURPOSES = (
    "accès|acces|confirmation|vérification|verification|sécurité|validation|(?:l')?(?:immeuble|alarme)|portail|porte"
)
_SPANISH_PURPOSES = "verificaci[oó]n|acceso|seguridad|confirmaci[oó]n|verifica[cç][aã]o|acesso|seguran[cç]a"
_PAIR = (
    r"(?:s|entials?| details?| data)?(?: are| is| sind| sont| son| ?:| -| as| with){1,2} [\"']?[\w.@+-]{2,64}"
    r"(?: ?/ ?|:)([^\s\"'(),]{4,80})"
)

# Kind, hint, what must end where the hint begins, pattern, how much the value must look like a secret.
_PHRASES: tuple[tuple[str, str, str, str, int], ...] = (
    ("pin", "pin", r"(?<![a-z0-9])", rf"pin(?:[ -]?(?:code|number|nummer|kode))?{_FOR}{_IS}([0-9]{{4,8}})\b", _ANY),
    ("pin", "pin", r"(?<![a-z0-9])", r"pin (?:code )?([0-9]{4,6})(?![0-9a-z.,-])", _ANY),
    ("pin", "geheimzahl", "", rf"geheimzahl{_FOR}{_IS}([0-9]{{4,8}})\b", _ANY),
    ("pin", "code pin", "", rf"code pin{_FOR}{_IS}([0-9]{{4,8}})\b", _ANY),
    ("access_code", "code", _QUALIFIED, rf"codes?{_FOR}{_IS}{_CODE}", _ANY),
    ("access_code", "code", _QUALIFIED, rf"code {_DIGITS}", _ANY),
    ("access_code", "code ", "", rf"code (?:for|to|of) (?:the |our |my )?(?:{_QUALIFIERS}){_IS}{_CODE}", _ANY),
    ("access_code", "code", _SENT, rf"code(?: is|:)? {_DIGITS}", _ANY),
    ("access_code", "use code ", "", rf"use code {_DIGITS} to (?:log|sign|verify|confirm|continue|reset)", _ANY),
    ("access_code", "code", r"pass[ -]?", rf"code{_FOR}{_IS}{_CODE}", _ANY),
    ("access_code", "code", rf"(?:{_GERMAN_QUALIFIERS})-?", rf"code{_FOR}{_IS}{_CODE}", _ANY),
    ("access_code", "code d", "", rf"code d(?:e|u|es)? ?'?(?:{_FRENCH_PURPOSES}){_FOR}{_IS}{_CODE}", _ANY),
    ("access_code", "digo de ", "", rf"digo de (?:{_SPANISH_PURPOSES}){_FOR}{_IS}{_CODE}", _ANY),
    ("access_code", "codice di ", "", rf"codice di (?:verifica|sicurezza|accesso|conferma){_FOR}{_IS}{_CODE}", _ANY),
    ("access_code", "otp", r"(?<![a-z])", rf"otp(?: code)?{_IS}{_DIGITS}", _ANY),
    ("access_code", "one-time ", "", rf"one-time (?:password|passcode|pin|code){_FOR}{_IS}{_DIGITS}", _ANY),
    ("access_code", "ombination", "", rf"ombination{_FOR}{_IS}([0-9]{{1,2}}[ -][0-9]{{1,2}}[ -][0-9]{{1,2}})\b", _ANY),
    *(
        ("access_code", words, rf"(?<![a-z0-9-])(?:g-)?{_DIGITS}", rf"{words} [^\n.]{{0,40}}?(?:{_CODE_NOUNS})", _ANY)
        for words in (
            " is your", " as your", " is the", " to confirm", " es tu", " es su", " est votre", " ist ihr", " ist dein",
            " è il", " é o seu",
        )
    ),
    ("card_code", "cv", r"(?<![a-z])", rf"cv(?:v|c)?2?(?: code| number)?(?:{_IS}| )([0-9]{{3,4}})\b", _ANY),
    ("card_code", "cvc", r"(?<![a-z])", rf"cvc2?(?: code| number)?(?:{_IS}| )([0-9]{{3,4}})\b", _ANY),
    ("card_code", "security code", "", rf"security code{_IS}([0-9]{{3,4}})\b", _ANY),
    (
        "recovery_code",
        "code",
        r"(?:recovery|backup|back-up|rescue|scratch|emergency|2fa)(?: \w{2,10})? ",
        r"codes?(?: for [^\n.,;:!?]{1,30}?)?(?: are| is|:|)[ \n\t\"]{0,4}",
        _LIST,
    ),
    ("recovery_code", "recovery key", "", rf"recovery key{_FOR}{_IS}([0-9]{{6}}(?:-[0-9]{{6}}){{3,7}})", _ANY),
    ("recovery_code", "wiederherstellungscode", "", rf"wiederherstellungscodes?{_IS}", _LIST),
    (
        "security_answer",
        "answer",
        r"(?:security|secret)(?: question(?:'s)?)? ",
        r"answer\)?(?: is|:|=) ?[\"']?([^\n.,;\"'()]{2,40})",
        WORD,
    ),
    (
        "security_answer",
        "answer to ",
        "",
        r"answer to (?:my|the|your|his|her|our) (?:security|secret) question(?: is|:) ?[\"']?([^\n.,;\"']{2,40})",
        WORD,
    ),
    *(
        ("credential", hint, "", hint + _PAIR, MADE_UP)
        for hint in (
            "cred", "login", "log in", "sign in", "zugangsdaten", "anmeldedaten", "identifiants", "credenciales",
            "credenziali",
        )
    ),
    (
        "password",
        " as ",
        r"(?<!\S)([^\s\"']{6,64})",
        r" as (?:my|the|a|her|his|our)(?: new| wifi)? (?:password|passphrase|passcode|pw)",
        MADE_UP,
    ),
    # Headers.
    ("credential", "basic ", r"(?<![a-z])", r"basic {1,3}([a-z0-9+/]{12,}={0,2})(?![a-z0-9])", RANDOM),
    ("credential", "bearer ", r"(?<![a-z])", r"bearer {1,3}([a-z0-9._~+/=-]{20,})", RANDOM),
    (
        "credential",
        "authorization",
        "",
        (r"authorization\\{0,3}[\"']?\]?[ ]{0,2}[:=][ ]{0,2}\\{0,3}[\"']?"
        r"(?:(?:basic|bearer|token|apikey|api-key|key|bot|splunk) {1,2})?(?!aws4-)([^\s\"',;\\]{8,})"),
        MADE_UP,
    ),
    # URLs.
    ("url_password", "://", "", r"://[^\s/:@?#\"'<>]{0,256}:([^\s/@\"'<>]{1,256})@", _ANY),
    ("url_password", "://", "", r"://([^\s/:@?#\"'<>]{16,256})@", RANDOM),
    # Commands.
    (
        "password",
        "mysql",
        "",
        r"mysql(?:dump|admin|import|check|show)?[ ](?:(?!mysql)[^\n|;]){0,120}?(?<= )-p([^\s\"']{4,64})",
        WORD,
    ),
    (
        "password",
        "curl ",
        "",
        r"curl (?:(?!curl)[^\n|]){0,200}?(?<= )(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,64}:([^\s\"']{3,128})",
        WORD,
    ),
    ("password", "sshpass ", "", r"sshpass -p ?[\"']?([^\s\"']{3,64})", WORD),
    ("password", "redis-cli ", "", r"redis-cli (?:(?!redis-cli)[^\n|]){0,80}?-a [\"']?([^\s\"']{4,128})", WORD),
    ("password", "zip ", "", r"zip (?:(?!zip )[^\n|]){0,60}?-p ?[\"']?([^\s\"']{4,64})", MADE_UP),
    ("password", "htpasswd ", "", r"htpasswd -[a-z]{0,4}b[a-z]{0,4} \S{1,80} \S{1,64} [\"']?([^\s\"']{4,64})", WORD),
    (
        "password",
        "openssl ",
        "",
        r"openssl (?:(?!openssl)[^\n|]){0,80}?(?:-k |-pass(?:in|out)? pass:)[\"']?([^\s\"']{4,64})",
        WORD,
    ),
    ("password", "docker login ", "", r"docker login (?:(?!docker)[^\n|]){0,80}?-p [\"']?([^\s\"']{4,128})", WORD),
    ("password", "sudo -s", r"echo [\"']?([^\s\"']{4,64})[\"']? ?\| ?", "sudo -s", WORD),
    (
        "password",
        "echo ",
        "",
        r"echo [\"']?([^\s\"']{4,128})[\"']? ?\| ?(?:docker|podman|helm|az|gh) [^\n|]{0,80}?--(?:password-|with-token)",
        WORD,
    ),
    ("password", "ssh-keygen ", "", r"ssh-keygen [^\n|]{0,80}?-n (?:\"([^\"\n]{4,128})|'([^'\n]{4,128}))", WORD),
    ("password", "echo ", "", r"echo [\"']?[\w.-]{1,32}:([^\s\"']{4,128})[\"']? ?\| ?(?:sudo )?chpasswd", WORD),
    ("password", "useradd ", "", r"useradd [^\n|]{0,80}?-p [\"']?([^\s\"']{4,128})", WORD),
    ("password", "ldap", "", r"ldap(?:search|modify|add|delete|whoami) [^\n|]{0,80}?-w [\"']?([^\s\"']{4,128})", WORD),
    ("password", "identified by ", "", r"identified by (?:password )?[\"']([^\"'\n]{4,128})", WORD),
    ("password", "/user:", "", r"/user:\S{1,64} [\"']?([^\s\"'/*][^\s\"']{3,64})", MADE_UP),
    ("password", " -u ", "", r" -u [\"']?[^\s\"']{1,80}[\"']? -p ?[\"']?([^\s\"']{4,128})", MADE_UP),
    ("password", "auth=(", "", r"auth=\(\s{0,4}[\"'][^\"'\n]{1,64}[\"'],\s{0,4}[\"']([^\"'\n]{4,128})", WORD),
    # Files with fields: .netrc, .pgpass.
    ("password", "login ", r"(?<![a-z])", r"login[ \t]{1,4}\S{1,64}\s{1,8}password[ \t]{1,4}(\S{3,256})", WORD),
    *(
        (
            "password",
            port,
            r"(?m:^)[\w.*-]{1,64}",
            r":(?:[0-9]{4,5}|\*):[\w*-]{1,63}:[\w*.-]{1,63}:(\S{4,128})(?m:$)",
            WORD,
        )
        for port in (":54", ":64", ":*:")
    ),
)  # fmt: skip
_RULES = tuple(
    Phrase(
        kind,
        hint,
        re.compile(rf"(?:{before})\Z") if before else None,
        re.compile(pattern),
        needed,
        _LONG_LEAD if ",64}" in before else _LEAD,
    )
    for kind, hint, before, pattern, needed in _PHRASES
)

_ITEM = re.compile(
    r"(?:[\s,;*•\"'-]|\b(?:and|und|y|et)\b|[0-9]{1,2}[.)] ){0,6}"
    r"((?=[A-Za-z-]{0,9}[0-9])[A-Za-z0-9]{3,10}(?:-[A-Za-z0-9]{3,10}){0,7})(?![A-Za-z0-9])"
)
_MAX_ITEMS = 24
_COOKIES = re.compile(r"cookie\\{0,3}[\"']?[ ]{0,2}[:=,][ ]{0,2}\\{0,3}[\"']?([^\n\"']{1,4096})")
_COOKIE = re.compile(r"(?<![^;\s])[\w.-]{0,40}(?:sess|sid|auth|token|jwt|login|remember)[\w.-]{0,40}=([^;\s]{1,2048})")
_URL_STAND_INS = frozenset({"password", "passwd", "pass", "pw", "secret", "token", "pwd", "***", "x"})


def phrased_secrets(reading: Reading) -> Iterator[tuple[str, int, int]]:
    """Kind, start and end of each secret that a phrase, a command or a header gives away."""
    lower, plain = reading.lower, reading.plain
    for rule in _RULES:
        place = lower.find(rule.hint)
        done = 0
        while place >= 0:
            before = rule.before.search(lower, max(done, place - rule.lead), place) if rule.before else None
            match = rule.pattern.match(lower, place) if before or not rule.before else None
            if match is not None:
                done = match.end()
                yield from _judged(rule, before if before and before.lastindex else match, plain)
            place = lower.find(rule.hint, max(done, place + len(rule.hint)))
    yield from _cookies(reading)


def _judged(rule: Phrase, match: re.Match[str], plain: str) -> Iterator[tuple[str, int, int]]:
    if rule.needed == _LIST:
        place = match.end()
        for _ in range(_MAX_ITEMS):
            item = _ITEM.match(plain, place)
            if item is None:
                return
            yield rule.kind, *item.span(1)
            place = item.end()
        return
    start, end = match.span(match.lastindex or 0)
    while end > start and plain[end - 1] in ").,;:? ":
        end -= 1
    value = plain[start:end]
    if rule.kind == "url_password":
        if (
            value.lower() in _URL_STAND_INS
            or "{" in value
            or "****" in value
            or value.startswith(("$", "<", "[", "%s"))
        ):
            return
        if rule.needed == _ANY:
            yield rule.kind, start, end
            return
    if rule.needed == _ANY or strength(value, quoted=plain[start - 1 : start] in _QUOTES) >= rule.needed:
        yield rule.kind, start, end


def _cookies(reading: Reading) -> Iterator[tuple[str, int, int]]:
    place = reading.lower.find("cookie")
    while place >= 0:
        header = _COOKIES.match(reading.lower, place)
        if header is not None:
            for cookie in _COOKIE.finditer(reading.lower, *header.span(1)):
                if strength(reading.plain[slice(*cookie.span(1))], quoted=True) == RANDOM:
                    yield "session", *cookie.span(1)
        place = reading.lower.find("cookie", place + 6 if header is None else header.end())
