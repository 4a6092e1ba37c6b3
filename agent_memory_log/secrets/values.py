"""How much a value looks like a secret: stand-ins, words and code are told from what somebody made up."""

from __future__ import annotations

import re

NOT_SECRET = 0
"""A stand-in, an adjective, code that reads the secret from elsewhere."""
WORD = 1
"""A word, which may be a weak password where nothing else can stand."""
MADE_UP = 2
"""Letters with digits, signs or capitals inside: hardly a word."""
RANDOM = 3
"""At least 16 characters that no person writes as text."""

# What a row of a table may need besides: nothing; a list of codes; letters and digits that are no version, date or id.
ANY = NOT_SECRET
LIST = -1
MIXED = -2

MIN_LENGTH = 4
_RANDOM_LENGTH = 16
_MANY_WORDS = 6
_KEY_LENGTH = 40
_FEW_HYPHENS = 2  # as "up-to-date" has; a phrase of words that was made up has more, or a capital

# What stands after "password:" or "the password is" without being one: states, words that lead on, types, stand-ins.
_WORDS_TEXT = """
    none null nil true false undefined yes no string str int integer bool boolean number bytes text varchar char
    object any optional required missing wrong invalid incorrect correct valid expired empty unknown weak strong
    short long needed set unset secret secrets password passwords passphrase passwd pass token tokens key keys
    apikey credential credentials here there changeme change_me replaceme replace_me redacted hidden masked
    removed omitted placeholder example sample dummy default encrypted hashed plain plaintext protected disabled
    enabled successful failed failure error denied accepted rejected stored saved kept safe secure insecure
    unsafe public private reset changed updated rotated revoked lost forgotten leaked compromised exposed shared
    reused case sensitive the a an this that these those it its my your his her our their same not never always
    only also still now just already too very please try again enter must should will would can cannot could may
    might has have had is are was were be been being to of for from in on at by with without and or but if when
    what which who why how about than then as so do does did done get got use used using via per least
    characters longer something anything nothing everything somewhere field value input prompt vault keychain
    1password lastpass bitwarden keepass base64 sha256 sha-256 md5 bcrypt utf-8 utf8 oauth2 oauth 2fa sso ssh2
    interactive stdin file env environment falsch richtig abgelaufen leer ungültig gültig erforderlich vergessen
    zu nicht der die das ein eine leider sehr muss kann incorrecta incorrecto correcta correcto inválida
    inválido válida la el una un es está muy debe caducada obligatoria vacía incorrecte invalide valide expiré
    oublié trop le les est pas doit requis obligatoire vide errada errado sbagliata sbagliato errata
    obbligatoria scaduta verlopen onjuist verkeerd ongeldig vereist fel felaktigt forkert błędne nieprawidłowe
    options option flag flags argument arguments parameter parameters verplicht nodig mandatory unchanged secure
    correctly incorrectly needed working invisible visible identical different unique memorable sensitive
    obvious simple complex longish shorter longer strongest numeric alphanumeric gone back below above inside
    under printed written somewhere anywhere nowhere elsewhere online offline ready fine okay good better best
    easy hard great terrible awful really pretty quite totally completely probably likely maybe there they these
    yours mine ours theirs optional automatic manual manually personal sent emailed included empty blank full
    cached synced known unknown broken stolen locked unlocked blocked taken available office365 auth0 o365 web3
    ipv4 ipv6 http2 fido2 u2f log4j oauth1 windows10 windows11 python3 aes256 aes-256 sha512 sha1 sha-1 sha-512
    argon2 argon2id scrypt pbkdf2 latin1 utf16 k8s ec2 include same-origin omit faible court longue fort facile
    perdu difficile inconnu muss soll kurz lang schwach stark sicher einfach bekannt unbekannt geheim falsche
    weg fehlt corta larga débil fuerte fácil secreta segura simples curta longa fraca forte breve lunga debole
    sicura kort zwak sterk veilig kwijt fout
    неверный неправильный wachtwoord contraseña senha passwort kennwort
"""
_WORDS = frozenset(_WORDS_TEXT.split())

_STAND_IN = re.compile(
    r"""<[^<>]{0,80}>?$ | \[.*\]?$ | \{.* | \$[A-Za-z_][\w/.]*$ | :\w+:.* | \$[({].* | \$\$?$ | %\(?[a-z_]{0,40}\)?[sd]$
      | %[A-Z_]{1,40}%$ | .*(?:\.\.\.|\u2026)$ | (?:your|insert|enter|put|add)[_ -].* | .*[_ -]here$
      | .*(?:placeholder|example|x{5,}|\*{4,}|redacted|change[_-]?me|replace[_-]?me|\{\{|\$\{).*
      | (?:env|file|vault|ref|secret):.* | convertto-securestring | !(?:ref|sub|getatt|vault|secret)\b.*""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_CALL = re.compile(r"[A-Za-z_&*][\w.>:-]{0,80}[(\[]")
_CODE = re.compile(r"[A-Za-z_]\w{0,60}(?:(?:\.|->|::)[A-Za-z_]\w{0,60}){1,6}[;,]?$|[=(\[{|&]")
_IDENTIFIER = re.compile(r"_{0,2}[A-Za-z]{1,20}[0-9]{0,3}(?:[_.-][A-Za-z]{2,20}[0-9]{0,3}){1,8}$")
_DIGIT = re.compile(r"[0-9]")
_PLACE = re.compile(
    r"[a-zA-Z][a-zA-Z0-9+.-]{1,20}://|[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9A-Za-z])|[A-Za-z]:\\"
    r"|[A-Za-z0-9-]{1,60}(?:\.[a-z0-9-]{2,60}){0,4}\.(?:com|org|net|io|local|internal)$"
)
_SIGN_INSIDE = re.compile(r"[^\W_](?:[^\w\s.,'\u2019-]|_[^\W_]*[A-Z])|[a-zß-ÿ][A-Z]|[@#$%^&*+=][^\W_]")
_NAMES_A_SECRET = re.compile(
    r"pass(?:word|wd|phrase)|placeholder|example|secret|token|api[_-]?key|credential", re.IGNORECASE
)
_RANDOM_FORM = re.compile(r"[A-Za-z0-9+/=_.~%!:-]+$")


def strength(value: str, *, quoted: bool) -> int:
    """How much ``value`` looks like a secret: one of the constants above.

    ``quoted`` says that it is a literal: what is not may be code.
    """
    if len(value) < MIN_LENGTH or len(set(value)) == 1:
        return NOT_SECRET
    if value.isalpha() and value.islower():  # most values that are none
        return NOT_SECRET if value in _WORDS or _NAMES_A_SECRET.search(value) else WORD
    has_digit = _DIGIT.search(value) is not None
    if _stands_for_another(value, has_digit=has_digit) or (not quoted and _is_code(value, has_digit=has_digit)):
        return NOT_SECRET
    if has_digit and len(value) >= _RANDOM_LENGTH and _RANDOM_FORM.match(value) and not _IDENTIFIER.match(value):
        return RANDOM if any(map(str.isalpha, value)) else MADE_UP
    hyphens = value.count("-")
    is_phrase = hyphens > _FEW_HYPHENS or (hyphens == _FEW_HYPHENS and value[0].isupper())
    return MADE_UP if has_digit or is_phrase or _SIGN_INSIDE.search(value) else WORD


def _stands_for_another(value: str, *, has_digit: bool) -> bool:
    """Whether ``value`` is a stand-in, ordinary words, or where a secret is to be found."""
    words = [word.strip(".,!?:;()") for word in value.lower().split()]
    ordinary = [word in _WORDS for word in words]
    if ordinary[:1] == [True] or len(words) > _MANY_WORDS or sum(ordinary) > 1 or _STAND_IN.match(value):
        return True
    if not has_digit and _NAMES_A_SECRET.search(value):
        return True
    is_path = value.startswith(("/", "./", "../", "~/")) and (len(value) < _KEY_LENGTH or not has_digit)
    return is_path or _PLACE.match(value) is not None


def _is_code(value: str, *, has_digit: bool) -> bool:
    if _CALL.match(value):
        return True
    return not has_digit and (_CODE.match(value) is not None or (value.isupper() and value.isidentifier()))
