"""Names of secrets and the values that follow them: ``DB_PASS=…``, ``"apiKey": "…"``, ``my password is …``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from agent_memory_log.secrets.reading import Reading
from agent_memory_log.secrets.values import MADE_UP, MIN_LENGTH, NOT_SECRET, RANDOM, WORD, strength


class Name(NamedTuple):
    """How a name of a secret is written, in lower case.

    - ``hint``: how ``pattern`` begins; ``before``: what must stand directly before it, if anything.
    - ``assigned``, ``told``, ``beside``: how much a value must look like a secret after ``=``, after "is", and after
      nothing but a space.
    """

    kind: str
    hint: str
    pattern: re.Pattern[str]
    before: re.Pattern[str] | None
    assigned: int
    told: int
    beside: int


_MOST_NESTED: Final = 4
_NEVER: Final = RANDOM + 1
_BEFORE_KEY = (
    "api|wep|wpa2?|secret|access|private|encryption|encrypt|signing|master|auth|account|licen[sc]e|webhook|service|deploy|session"
    "|app|application|consumer|shared|storage|jwt|hmac|ssh|security|admin|subscription|integration|server|write|read|wlan|wifi|wi-fi|network|client|root|activation|product|bot|project|ingest|openai|azure|stripe|google|aws"
)


def _name(kind: str, hint: str, pattern: str, *needed: int, before: str = "") -> Name:
    """A name; its pattern may be followed by a number, and by nothing that makes it part of another name."""
    whole = re.compile(rf"(?:{pattern})(?:_?[0-9]{{1,2}}|_base)?(?![a-z0-9_-])")
    return Name(kind, hint, whole, re.compile(rf"(?:{before})\Z") if before else None, *needed)


# A key with a name before it, which is not one that tables, caches and maps have.
_NO_PLAIN_KEY = (
    "[a-z0-9]{2}(?<!cache)(?<!primary)(?<!foreign)(?<!public)(?<!publishable)(?<!anon)(?<!idempotency)(?<!partition)(?<!sort)"
    "(?<!object)(?<!s3)(?<!dedup)(?<!group)(?<!lookup)_"
)
_WIFI_CODE = "(?:code|cl[eé]f?|c[oó]digo|codice|chiave|chave|sleutel|schlüssel)(?: du| del| de la| do)? "
_OTHER_LANGUAGES = (
    "kennwort senha palavra-passe wachtwoord lösenord losenord passord kodeord adgangskode salasana hasło haslo heslo"
    " jelszó şifre sifre şifrem parola пароль 密码 密碼 口令 パスワード 비밀번호 암호"
)
# Kind, hint, pattern, and what is needed: assigned, told, beside.
_NAMES = (
    _name("password", "pass", "pass(?:w(?:or|ro)d|owrd|wd| ?phrase|wort|code|key)(?:'?s)?", WORD, MADE_UP, MADE_UP),
    _name("password", "pass", "(?<=[a-z]_)pass", WORD, MADE_UP, MADE_UP),
    _name("password", "pass", "(?<![a-z])pass|(?<=db|sh|tp|er|il|in|ot|is|ql|me)pass", MADE_UP, MADE_UP, RANDOM),
    *(_name("password", word, f"(?<![a-z]){word}", WORD, MADE_UP, MADE_UP) for word in ("p/w", "psswd", "pswd")),
    _name("session", "sid", "(?<![a-z_])sid", RANDOM, _NEVER, _NEVER),
    _name("api_key", "appid", "appid", RANDOM, RANDOM, _NEVER),
    _name("signature", "x-amz-signature", "x-amz-signature", RANDOM, _NEVER, _NEVER),
    _name("password", "pasw", "paswo?rd", WORD, MADE_UP, MADE_UP),
    _name("password", "mdp", "(?<![a-z])mdp", WORD, MADE_UP, MADE_UP),
    _name("password", "keymaterial", "keymaterial", WORD, MADE_UP, MADE_UP),
    _name("password", "storepass", "storepass(?:wd)?", WORD, WORD, WORD),
    _name("password", "bind_pw", "bind_?pw", WORD, WORD, WORD),
    _name("password", "requirepass", "requirepass", WORD, MADE_UP, WORD),
    _name("password", "mot", "mots? ?de ?passe", WORD, MADE_UP, MADE_UP),
    _name("password", "pwd", "(?<![a-z])pwd|(?<=db)pwd", WORD, MADE_UP, MADE_UP),
    _name("password", "pw", "(?<![a-z])pw", WORD, MADE_UP, MADE_UP),
    _name("password", "psk", "(?<![a-z])psk", WORD, MADE_UP, RANDOM),
    _name("password", "contrase", "contrase[ñn]a", WORD, MADE_UP, MADE_UP),
    _name("password", "clave", "(?<![a-z])clave", MADE_UP, MADE_UP, RANDOM),
    *(_name("password", word, f"{word}(?:et|n)?", WORD, MADE_UP, MADE_UP) for word in _OTHER_LANGUAGES.split()),
    _name("token", "token", "token", MADE_UP, RANDOM, RANDOM),
    _name("secret", "secret", "(?<=[a-z]_)secret", WORD, RANDOM, RANDOM),
    _name("secret", "secret", "secret", MADE_UP, RANDOM, RANDOM),
    _name("api_key", "key", "key", MADE_UP, MADE_UP, RANDOM, before=f"(?:{_BEFORE_KEY})[_ .-]?"),
    _name("api_key", "key", "key", RANDOM, _NEVER, _NEVER, before=_NO_PLAIN_KEY),
    _name("password", "wifi", "wi-?fi[ -]?(?:key|code)", WORD, MADE_UP, MADE_UP),
    *(_name("password", word, word, WORD, MADE_UP, RANDOM, before=_WIFI_CODE) for word in ("wifi", "wi-fi")),
    _name("password", "schlüssel", "schlüssel", WORD, MADE_UP, RANDOM, before="(?:wlan|wifi|netzwerk)[ -]?"),
    _name("password", "clé", "clés? (?:du )?wi-?fi", MADE_UP, MADE_UP, MADE_UP),
    _name("credential", "auth", "auth", RANDOM, _NEVER, RANDOM),
    _name("credential", "dockerconfigjson", "dockerconfigjson", RANDOM, _NEVER, _NEVER),
    _name("credential", "credential", "credentials?", MADE_UP, RANDOM, _NEVER),
    _name("password", "redis", "rediscli_auth", WORD, MADE_UP, _NEVER),
    _name("session", "session cookie", "session cookie", RANDOM, RANDOM, RANDOM),
    _name("session", "sess", "sess(?:ion)?[_ -]?id", RANDOM, RANDOM, RANDOM),
    _name("session", "connect.sid", "connect\\.sid", RANDOM, _NEVER, _NEVER),
    _name("community", "snmp", "snmp(?:-server)?[_ -]communit(?:y|ies)(?: string)?", MADE_UP, MADE_UP, MADE_UP),
)
_NAMES_BY_HINT: dict[str, list[Name]] = {}
for _row in _NAMES:
    _NAMES_BY_HINT.setdefault(_row.hint, []).append(_row)

# Tokens that give no access, so that pages and models can be spoken of.
_HARMLESS_BEFORE = re.compile(
    r"(?:page|next|continuation|sync|pad|eos|bos|unk|mask|sep|cls|stop|special|cursor|resume|first|last|public|per|max|min"
    r"|new|request|idempotency|[0-9]{1,9})[_ .-]?\Z"
)

_FILLER = (
    r"(?: (?:provisoire|temporaire|nueva|temporal|actual|provvisoria|temporanea|nova|atual|wifi|wi-fi|wlan|again|btw))?"
    r"(?: (?:for|of|to|on|at|in|del?|du|des|der|di|dell[aoe]|da|do|vom|von|fürs?|zum|zur|meine[rsm]?|unse?re[rsm]?|til"
    r"|till|för|voor|van|от|для|you|that|it|we|i|they|he|she|pour|para|per|dos|das|bij|op|im|the)"
    r" (?:[^\n.,;:!?=\"]|\.(?=[a-z])){1,40}?)?"
)
_IS = (
    "(?:'s| (?:used to be|will be|should be|is|was|to be|are|ist|bleibt|wäre|lautet|es|será|era|est|sera|c'est|était|è"
    "|é|e'|är|er|wordt|blijft|blev|jest|je|to jest|это|became|reads|says|stays|remains|sigue|reste|rimane|resta"
    "|continua|fica|permanece))"
    "(?: (?:immer noch|nog steeds|now|still|just|literally|simply|currently|actually|again|probably|always|set to"
    "|jetzt|nun|noch|ahora|maintenant|toujours|ora|adesso|agora|nu|nog|le|el|il|o|uh|um|siendo|sendo|essendo|a ser"
    "|todavía|ancora|encore|sempre|siempre))?(?: ?:)? | ?(?:は|是|为|為|는|은) ?"
)
# As in "I changed my password to", and in many a phrase without a secret.
_MOVED = " (?:wurde |was |got )?(?:to|as|auf|a|en|in|na|par|para|per|naar|till|til|from|von|with) "

_AFTER_NAME = re.compile(
    rf"""
    (?P<closed>\\{{0,3}}["'`*\])]{{0,3}})
    (?:[ ]?[(\[][^\n()\[\]]{{1,30}}[)\]](?=[ ]?[:=]))?
    (?:
      (?:[ ]?:[ ]?[A-Za-z_][\w.|\[\],]{{0,40}}(?:[ ]\|[ ]None)?(?=[ ]?=[ ]))?
      {_FILLER.replace(" ", "[ ]")}
      (?:
        (?P<assigned>
          [ \t]{{0,40}}
          (?:=>|:=|\?=|=(?!=)|[:\uff1a]
            |,?\s{{0,12}}\{{?\s{{0,8}}(?:(?:type|description|sensitive)[ ]{{0,8}}=[^\n"]{{0,40}}\s{{1,8}}){{0,3}}
             \\{{0,3}}["']?(?:value|default|content)\\{{0,3}}["']?[ ]{{0,2}}[=:])
          (?:\*\*)?[ \t]{{0,8}}(?:\n(?=[^\s:]{{6,64}}(?:\n|$)))?
        )
        |(?P<element>>)
        |(?P<listed>(?<=["']),[ ]?(?=["']))
        |(?P<called>\((?=["']))
        |(?P<told>{_IS.replace(" ", "[ ]")})
        |(?P<moved>{_MOVED.replace(" ", "[ ]")})
      )
      |(?P<beside>[,?]?[ \t]{{1,4}}(?:(?:-{{1,2}}>?|→|—|\u2013|=>|>|\|)[ \t]{{1,4}})?)
    )
    (?P<quote>(?:[rbfuRBFU]{{1,2}}(?=["']))?\\{{0,3}}["'`“”„«])?
    """,
    re.VERBOSE,
)
_VALUE = re.compile(r"""[^\s"'`<>;,、。“”«»]{1,400}""")
_UNTIL_QUOTE = {
    '"': re.compile(r'[^"\n]{1,400}'),
    "'": re.compile(r"[^'\n]{1,400}"),
    "`": re.compile(r"[^`\n]{1,400}"),
    "“": re.compile(r"[^”\n]{1,400}"),
    "”": re.compile(r"[^”\n]{1,400}"),
    "„": re.compile(r"[^“”\n]{1,400}"),
    "«": re.compile(r"[^»\n]{1,400}"),
}
_NEXT_PARAMETER = re.compile(r"&(?:amp;)?[A-Za-z_.-]{1,40}=")
_CLAUSE_ENDS = re.compile(r"[ \t]*(?:$|[\n.,;:!?)<\]}|/]|and\b|und\b|y\b|et\b|[-\u2013\u2014][ ]|user|host|port|#)")
_NAME_GOES_ON = (" for ", " of ", " to ", " del ", " de ", " du ", " für ", " von ")
_SHOUTED = re.compile(r"[A-Z0-9_]{2,64}\Z")
_SECTION = re.compile(r"^\[[\w. -]{1,40}\]$", re.MULTILINE)
_LONGEST_SECTION = 200
# How words end that say what a password is like, in seven languages.
_DESCRIBES = re.compile(
    r"(?:ed|ing|[ai]ble|less|ful|ary|ory|[it]ive|ous|[ae]nt|ally?|[ai]te|[aiu][td][oa]s?|ari[oa]|[oó]ri[oa]|é|ée|baar|bar"
    r"|lich|lijk|isch|ig|ert|iert|urt)$"
)
_MIN_PLAIN = 6


def named_secrets(reading: Reading) -> Iterator[tuple[str, int, int]]:
    """Kind, start and end of each value in ``reading`` that follows the name of a secret."""
    lower = reading.lower
    for hint, names in _NAMES_BY_HINT.items():
        place = lower.find(hint)
        done = nested = last_stop = 0
        while place >= 0:
            done = place + len(hint)
            name = _name_at(names, lower, place)
            if name is not None:
                row, end = name
                done = end
                value = _value_after(reading, row, place, end)
                if value is not None:
                    begin, stop, is_secret = value
                    if is_secret:
                        yield row.kind, begin, stop
                    # Names in each other's values: a long run of them is not read again for each.
                    nested = nested + 1 if begin < last_stop else 0
                    last_stop = max(last_stop, stop)
                    if nested >= _MOST_NESTED:
                        done = max(done, last_stop)
                        nested = 0
            place = lower.find(hint, done)


def _name_at(names: list[Name], lower: str, place: int) -> tuple[Name, int] | None:
    """The first of ``names`` that stands at ``place``, and where it ends."""
    for name in names:
        match = name.pattern.match(lower, place)
        if match is None or (name.before is not None and not name.before.search(lower, max(0, place - 20), place)):
            continue
        if name.kind == "token" and _HARMLESS_BEFORE.search(lower, max(0, place - 13), place):
            return None
        return name, match.end()
    return None


def kind_of_name(name: str) -> tuple[str, int] | None:
    """The kind of secret that ``name`` (a key of a map) names and how much its value must look like one, or None."""
    lower = Reading(name).lower
    for hint, names in _NAMES_BY_HINT.items():
        place = lower.rfind(hint)
        row = _name_at(names, lower, place) if place >= 0 else None
        if row is not None and (row[1] == len(lower) or lower.startswith(_NAME_GOES_ON, row[1])):
            return row[0].kind, row[0].assigned
    return None


def _value_after(reading: Reading, name: Name, start: int, end: int) -> tuple[int, int, bool] | None:
    """Where the value stands that belongs to the name at ``start`` to ``end``, and whether it is a secret, if any."""
    plain = reading.plain
    after = _AFTER_NAME.match(plain, end)
    if after is None:
        return None
    begin, stop, quoted = _value_at(plain, after)
    value = plain[begin:stop]
    if value.isdecimal():  # a number is a password where the name says so, never a token
        return begin, stop, name.assigned == WORD and len(value) >= MIN_LENGTH and after["beside"] is None
    found = strength(value, quoted=quoted)
    if found == NOT_SECRET or (value.startswith("-") and not quoted):
        return begin, stop, False
    is_password = name.assigned == WORD or (name.kind == "password" and quoted and after["closed"] != "")
    if after["element"] is not None:
        is_secret = found >= name.assigned and plain.startswith("</", stop)
    elif after["beside"] is not None:
        is_option = plain.startswith("--", plain.rfind(" ", 0, start) + 1)
        is_setting = (
            "_" in plain[max(0, start - 10) : end] and _SHOUTED.search(plain, max(0, start - 40), end) is not None
        )
        needed = max(MADE_UP, name.assigned) if is_option or is_setting else name.beside
        is_literal = is_password and (
            is_option or name.beside == WORD or (quoted and plain[start:end].isupper())
        )  # SQL: PASSWORD 'tulips'
        is_secret = (is_literal or (found >= needed and (found == RANDOM or _mixed(value)))) and (
            "," not in after["beside"] or (is_password and any(map(str.isdigit, value)))
        )
    elif after["told"] is not None:
        is_secret = found >= (WORD if is_password and (quoted or _is_plain_word(plain, begin, stop)) else name.told)
    elif after["listed"] is not None or after["called"] is not None:
        is_set = plain[start - 3 : start].lower() == "set" or (is_password and plain[start:end].isupper())
        is_define = plain[max(0, start - 40) : start].lower().rfind("define(") >= 0
        is_secret = (is_set or is_define) or (
            (is_password or (after["listed"] is not None and " " not in value and name.told != _NEVER))
            and found >= MADE_UP
            and any(map(str.isdigit, value))
        )
    elif after["moved"] is not None:
        is_secret = (is_password and quoted) or (
            found >= MADE_UP and (is_password or (name.kind == "password" and _mixed(value)))
        )
    else:
        # A word: in prose "password: try again" goes on, in code "password = text" is a variable.
        is_whole = (
            quoted
            or (_CLAUSE_ENDS.match(plain, stop) is not None and after["assigned"] != " = ")
            or after["assigned"] == "="
            or _SECTION.search(plain, max(0, begin - _LONGEST_SECTION), begin) is not None
        )
        needed = WORD if is_password and not after["assigned"].endswith("\n") else max(MADE_UP, name.assigned)
        is_secret = found >= needed and (is_whole or found > WORD) and (is_password or quoted or not value.isalpha())
    return begin, stop, is_secret


def _value_at(plain: str, after: re.Match[str]) -> tuple[int, int, bool]:
    """Where the value behind ``after`` begins and ends, and whether it is quoted."""
    begin = after.end()
    quote = after["quote"]
    if quote:
        match = _UNTIL_QUOTE[quote[-1]].match(plain, begin)
        if match is None:
            return begin, begin, True
        if match.end() < len(plain) and plain[match.end()] != "\n":
            stop = match.end()
            while stop > begin and plain[stop - 1] == "\\":
                stop -= 1
            return begin, stop, True
    match = _VALUE.match(plain, begin)
    if match is None:
        return begin, begin, False
    stop = match.end()
    parameter = _NEXT_PARAMETER.search(plain, begin, stop)
    if parameter is not None:
        stop = parameter.start()
    while stop > begin and plain[stop - 1] in ".,:?)]}\\" and not (plain[stop - 1] == "}" and "{" in plain[begin:stop]):
        stop -= 1
    if plain.find("です", begin, stop) > begin:
        stop = plain.find("です", begin, stop)
    return begin, stop, False


def _is_plain_word(plain: str, begin: int, stop: int) -> bool:
    """Whether all that is said of a password is one word, which hardly tells what the password is like."""
    word = plain[begin:stop]
    return (
        len(word) >= _MIN_PLAIN
        and word.isalpha()
        and _DESCRIBES.search(word.lower()) is None
        and _CLAUSE_ENDS.match(plain, stop) is not None
    )


def _mixed(value: str) -> bool:
    return any(map(str.isalpha, value)) and (any(map(str.isdigit, value)) or not value[1:-1].isalnum())
