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
_MIXED = -2
"""Letters and digits, and no word or place of the trade."""


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
    r"[\"']?(?:'s| is| are| will be| was| now| still| es| est(?: le| la)?| c'est| ist| sind| lautet| bleibt| blijft| è| é"
    r"| era| är| er| reads| changed to| set to|:| ?=(?!=)| -| ->| →|は|是){1,3}[ \t\"'(]{0,3}"
)
_FOR = (
    r"(?: (?:for|to|of|on|at|from|del?|du|de la|meine[rsm]?|fürs?|zum|zur|vom|von|der|des|da|do|di|dell[ae]|im|in|pour|para"
    r"|per|voor|van|they|i|we|you|he|she|it|that|which|que|qui|che|the) [^\n.,;:!?=\"]{1,40}?)?"
)
_DIGITS = r"([0-9]{2,4}[ -][0-9]{3,4}\b|[*#]?[0-9]{4,8}\b#?)"
_CODE = r"([0-9]{2,4}[ -][0-9]{3,4}\b|[*#][0-9]{4,8}#?|(?=[a-z-]{0,9}[0-9])[a-z0-9]{4,10}\b#?)"
_MANY_DIGITS = (
    r"([0-9]{2,4}[ -][0-9]{3,4}\b|[*#]?[0-9]{4,8}\b(?![.,][0-9])#?"
    r"|(?=[a-z0-9]{4,8}\b)(?:[a-z][0-9]{3,6}[a-z]?|[0-9]{2,6}[a-z][0-9]{0,4})\b)"
)
_CODE_NOUNS = r"code|otp|password|código|codigo|codice|passwort|mot de passe|\bpin\b|\bpuk\b|\btan\b|combo|senha"
# Codes that open nothing, and what is counted or measured.
_HARMLESS = re.compile(
    r"(?<![a-z])(?:err(?:or|no)?|zip|post(?:al|leitzahl|code)?|area|country|status|exit|return|response|http|promo\w*|discount"
    r"|coupon|voucher|gift|referral|invite|order|booking|reservation|product|item|model|part|bar|qr|dress|colou?r|tax|sort"
    r"|swift|bic|flight|airport|source|fehler|erreur|descuento|desconto|sconto|rabatt|kortings?|korting|tracking|unicode|ascii"
    r"|lines?|fault|event|reason|sku|naics|icd|cpt|dial(?:ing)?|route|course|class|build|version|language|currency|hex|locale"
    r"|signal|exit\w*|clos\w+|crash\w*|airline|city|location|store|branch|dep(?:artmen)?t|job|charge|billing|procedure|diagnos\w+"
    r"|occupation|industry|cost|project|lot|batch|vendor|supplier|unit|agency|station|channel|ticket|invoice|case|port|year|pages?|vorwahl|gutschein\w*|cp|cap|plz)(?:-|_|code|s)?(?![a-z])"
    r"|(?:post|zip|bar|error|fehler|uni|status|country|gutschein|rabatt)-?codes?"
)
_PASSWORD_NOUN = (
    r"(?<![a-z])(?:pass(?:w(?:or|ro)d|wort|phrase|code|wd)?s?|pwd?|mdp|mot de passe|contrase[ñn]a|clave|senha|wachtwoord"
    r"|kennwort|parola|cred(?:ential)?s|log(?:ged|ging)? ?(?:in|on)|sign(?:ed)? in|wi-?fi|wlan|entra|inicia sesi[oó]n|melde dich"
    r"|anmelden|einloggen|connecte[rz]?|inloggen|aanmelden|acced[ei]|accedi)(?![a-z])"
)
_VALUE = r"[\"'`«“]?[ ]?([^\s\"'`,;()<>/«»“”]{6,64})"
_GIVEN_AFTER = (
    "typing |typed |entered |new one |it's | its |it is | one is | one was | one: | jetzt | nun |changed it to |reset it to |set it to |changed to |reset to "
    "|set to |updated to |with | w/ |now | use | try |c'est |ahora es |ora è |agora é |is nu |es ist |mit | avec | con | com "
    "| met | naar | para | auf |from | to "
)
_PLACES = (
    "gate|door|alarm|garage|lockbox|lock box|key ?safe|key ?box|keypad|safe|locker|shed|intercom|alarma|alarme|allarme|portail"
    "|digicode|caja fuerte|cassaforte|cancello|portón|portão|coffre|tresor|haustür|garagentor|kluis|deur|poort|buzzer"
)
_QUALIFIERS = (
    "door|gate|alarm|entry|access|garage|lock|locker|safe|keypad|building|security|verification|confirmation|login"
    "|log-in|sign-in|authentication|authorization|auth|one[- ]time|2fa|two-factor|otp|sms|unlock|pairing|phone|lockbox|lock box"
    "|key ?box|key ?safe|atm|card|bank|gym|intercom|authenticator|guard|house|home|shed|reset|sim|voicemail|mfa|totp|vault|buzzer"
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
    r"(?:s|entials?| details?| data)?(?: (?:for|to|für|para|pour|per) [^\n:]{1,30}?)?"
    r"(?: are| is| sind| sont| son| ?:| -| as| with| w/| met| mit| con| avec|)(?: ?:)? [\"']?[\w.@+-]{2,64}"
    r"(?: ?/{1,2} ?| ?\| ?|:)([^\s\"'(),]{4,80})"
)

# Kind, hint, what must end where the hint begins, pattern, how much the value must look like a secret.
_PHRASES: tuple[tuple[str, str, str, str, int], ...] = (
    ("pin", "pin", r"(?<![a-z0-9])[mt]?", rf"pin[2s]?(?:[ -]?(?:code|number|nummer|kode))?{_FOR}{_IS}([0-9]{{4,8}})\b", _ANY),
    ("pin", "pin", r"(?<![a-z0-9])", rf"pin(?: ?code)?{_FOR},? ([0-9]{{4,6}})(?![0-9a-z-]|[.,][0-9])", _ANY),
    ("pin", "pin", r"(?<![a-z0-9])[mt]?", r"pins?(?: for [a-z ]{2,20})?(?: used to be| to| from| is) ([0-9]{4,6})\b(?![.,][0-9])", _ANY),
    *(
        ("pin", hint, r"(?<![a-z])pins?[^\n.]{0,20} [0-9]{4,6}", rf"{hint}([0-9]{{4,6}})\b", _ANY)
        for hint in (" to ", " and ", ", ", " & ")
    ),
    ("pin", "pin ", r"(?<![a-z0-9])[mt]", r"pin ([0-9]{4,6})\b", _ANY),
    ("pin", "geheimzahl", "", rf"geheimzahl{_FOR}(?:{_IS}| )([0-9]{{4,8}})\b", _ANY),
    ("pin", "puk", r"(?<![a-z])", rf"puk(?:[ -]?(?:code|nummer))?{_FOR}(?:{_IS}| )([0-9]{{6,10}})\b", _ANY),
    ("pin", "clave ", "", r"clave ([0-9]{4,8})\b", _ANY),
    ("password", "pass", r"(?<![a-z])", r"pass(?:word|code)[ ]([0-9]{4,8})(?![0-9a-z.,-]| [a-z]{4})", _ANY),
    # A code that is not said to be harmless.
    ("access_code", "code", r"[a-zäöüéèß',]\"? ?", rf"codes?{_FOR}{_IS}{_MANY_DIGITS}", _ANY),
    ("access_code", "code", r"(?m:^)", rf"codes?(?= \w){_FOR}{_IS}{_MANY_DIGITS}", _ANY),
    ("access_code", "digo", r"c[oó]", rf"digo{_FOR}{_IS}{_MANY_DIGITS}", _ANY),
    ("access_code", "codice", "", rf"codice{_FOR}(?: [a-z]{{2,12}})?{_IS}{_MANY_DIGITS}", _ANY),
    (
        "access_code",
        "cod",
        r"(?<![a-z])",
        rf"(?:cod(?:e|ice)|c[oó]digo) (?:d[eoiu]\w{{0,3}} |d'|della |du |de la )?"
        rf"(?:{_PLACES}|{_FRENCH_PURPOSES}|entr[ée]e)(?: |{_IS}){_MANY_DIGITS}",
        _ANY,
    ),
    (
        "access_code",
        "code ",
        r"(?<![a-zäöü])(?:tresor|sperr|haus|tür|haustür|alarm|zugangs|tor|garagen|deur|toegangs|poort|digi|pin|pass){1,2}",
        rf"code {_MANY_DIGITS}",
        _ANY,
    ),
    *(
        (
            "access_code",
            place,
            r"(?<![a-z])",
            rf"{place}(?: [a-z]{{2,9}}){{0,4}}?(?:'s| is| code| combo| pin| opens with| with| takes|:| =| es| est| ist| è| é)"
            rf"[ :]{{1,2}}{_DIGITS}(?! ?(?:mm|cm|am|pm|inch|usd|eur))",
            _ANY,
        )
        for place in _PLACES.replace("key ?", "key").replace("keysafe", "key safe").split("|")
    ),
    *(
        ("access_code", place, "", rf"{place} {_DIGITS if len(place) > 5 else '(#[0-9]{4,8})'}(?! ?[a-z]?m )", _ANY)
        for place in ("bike lock", "lock combo", "hotel safe", "alarm panel", "lockbox,", "disarm with", "disarm", "gate", "entry is", "caja fuerte", "cassaforte", "tresor", "lockbox", "key safe", "keypad")
    ),
    *(
        (
            "access_code",
            verb,
            r"(?<![a-z])",
            rf"{verb}(?: in| the code| code)? {_DIGITS} [^\n.]{{0,24}}?(?:{_PLACES}|keypad|disarm|verify|confirm|factor|authenticat|log ?in|sign ?in)",
            _ANY,
        )
        for verb in ("punch", "enter", "type", "press", "dial", "key in", "tape", "tapez", "use", "introduce", "digita")
    ),
    (
        "access_code",
        " tape",
        r"(?:alarme|porte|portail|immeuble|code)[^\n]{0,50}",
        rf" tapez? (?:le )?{_DIGITS}",
        _ANY,
    ),
    (
        "access_code",
        "says ",
        r"(?:authenticator|authy|app|sms|text|message|it|phone)[^\n.]{0,15} ?",
        r"says ([0-9]{6}|[0-9]{3} [0-9]{3})\b",
        _ANY,
    ),
    *(
        ("access_code", hint, r"(?<![a-z0-9])", rf"{hint}(?: token| code)?{_FOR}(?:{_IS}| )([0-9]{{6,8}}|[0-9]{{3}} [0-9]{{3}})\b", _ANY)
        for hint in ("2fa", "mfa", "totp", "otp")
    ),
    *(
        ("access_code", hint, r"(?<![a-z])", rf"{hint}([0-9]{{3}}[ -]?[0-9]{{3}})\b(?![.,-][0-9])", _ANY)
        for hint in ("sent me ", "texted me ", "verification: ", "entry code for guests ")
    ),
    ("access_code", "code ", r"(?m:^)", r"code ([0-9]{6})(?=$|[\n.,])", _ANY),
    (
        "access_code",
        "tan",
        r"(?<![a-z])(?:m|i|sms-?|push-?|photo-?|chip-?)?",
        rf"tan(?: (?:für|fuer|zur|zum|for)[^\n]{{0,50}}?)?{_IS}([0-9]{{6,8}})\b",
        _ANY,
    ),
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
    *(
        ("access_code", hint, before, rf"{hint}{_FOR}(?:{_IS}| )([0-9]{{1,2}}[ -][0-9]{{1,2}}[ -][0-9]{{1,2}})\b", _ANY)
        for hint, before in (("ombination", ""), ("combo", "(?:safe|locker|lock) "))
    ),
    *(
        ("access_code", words, rf"(?<![a-z0-9-])(?:g-)?{_DIGITS}", rf"{words} [^\n.]{{0,40}}?(?:{_CODE_NOUNS})", _ANY)
        for words in (
            " is your", " as your", " as the", " as my", " is my", " is our", " is the", " to confirm", " es tu", " es su", " est votre", " ist ihr", " ist dein",
            " è il", " é o seu", " is otp", " by sms", " via sms", " by text", " per sms",
        )
    ),
    *(
        ("card_code", hint, r"(?<![a-z])", rf"{pattern}{_FOR}(?:{_IS}| )([0-9]{{3,4}})\b", _ANY)
        for hint, pattern in (
            ("cv", "cv(?:v|c|n)?2?(?: code| number)?"), ("csc", "csc"), ("cid", "cid"), ("security code", "security code"),
            ("cryptogramme", "cryptogramme(?: visuel)?"), ("prüf", "prüf(?:ziffer|nummer)"), ("kartenprüf", "kartenprüf(?:ziffer|nummer)"),
            ("verification code", "verification code"), ("3 digit", "3 digits?(?: code)?"), ("three digit", "three digits?(?: code)?"),
            ("digo de segur", "digo de segur(?:idad|an[cç]a)"), ("code de sécurité", "code de sécurité"), ("codice di sicurezza", "codice di sicurezza"),
            ("beveiligingscode", "beveiligingscode"), ("4 digit", "4 digits?(?: code)?"),
        )
    ),
    (
        "recovery_code",
        "code",
        r"(?:recovery|backup|back-up|rescue|scratch|emergency|2fa)(?: \w{2,10})?[ _-]",
        r"codes?[\"']?(?: ?\([^\n)]{0,40}\))?(?: for [^\n.,;:!?]{1,40}?(?=[\n:]| are| is))?(?: are| is|)[ \n\t\":=\[(-]{0,8}",
        _LIST,
    ),
    ("recovery_code", "key", "(?:recovery|bitlocker)(?: recovery)? ", rf"key{_FOR}(?:{_IS}| )([0-9]{{6}}(?:-[0-9]{{6}}){{3,7}})", _ANY),
    ("recovery_code", "recovery key", "", rf"recovery key{_FOR}(?:{_IS}| )([a-z0-9]{{4}}(?:-[a-z0-9]{{4}}){{3,7}})\b", _ANY),
    (
        "license_key",
        "key",
        r"(?:product|licen[sc]e|activation|serial|windows)[^\n]{0,20}",
        rf"key{_FOR}(?:{_IS}| )([a-z0-9]{{4,6}}(?:-[a-z0-9]{{4,6}}){{3,5}})\b",
        _ANY,
    ),
    ("recovery_code", "2fa backup ", "", r"2fa backup ([a-z0-9]{4,8}-[a-z0-9]{4,8})\b", _ANY),
    ("totp_secret", "key", "(?:setup|2fa|totp|authenticator|secret) ", rf"key{_FOR}(?:{_IS}| )([a-z2-7]{{4}}(?: [a-z2-7]{{4}}){{3,7}})\b", _ANY),
    ("recovery_code", "wiederherstellungscode", "", rf"wiederherstellungscodes?{_IS}", _LIST),
    (
        "security_answer",
        "answer",
        r"(?:security|secret|recovery)(?: question(?:'s)?[^\n]{0,60})? ?",
        r"answers?\)?(?: is| are|:| =|=) ?[\"']?([^\n.,;\"'()]{2,40})",
        WORD,
    ),
    (
        "security_answer",
        "answer to ",
        "",
        r"answer to (?:my|the|your|his|her|our) (?:security|secret) question(?: is|:) ?[\"']?([^\n.,;\"']{2,40})",
        WORD,
    ),
    ("security_answer", "maiden name", "", r"maiden name(?: is|:| =|=|\?|){1,2}(?: a:)? ?[\"']?([^\n.,;\"'()]{2,40})", WORD),
    (
        "security_answer",
        "first ",
        r"(?:secur|recovery|secret|maiden)[^\n]{0,70}",
        r"first (?:pet|car|school|street|job|concert)(?:'s name)?(?: is| was|:| =|=|\?){1,2}(?: a:)? ?[\"']?([^\n.,;\"'()]{2,40})",
        WORD,
    ),
    (
        "security_answer",
        "a: ",
        r"(?:first|mother|maiden|pet|street|school|gr[eo]w up|born|favou?rite|childhood)[^\n?]{0,50}[?/]\s{1,3}",
        r"a: ([^\n.,;\"'()]{2,40})",
        WORD,
    ),
    *(
        ("password", hint, "", hint + r"(?: is|:| =|=|){1,2} ?[\"'«]? ?([^\s.,;\"'()«»]{4,40})", WORD)
        for hint in ("memorable word", "security word", "safe word", "code word", "mot de secours", "parola d'ordine")
    ),
    (
        "security_answer",
        "? ",
        r"(?:secret|security|recovery) question[^\n?]{0,60}",
        r"\? (?:a(?:nswer)?: )?([^\n.,;\"'()]{3,40})(?=$|[\n.,;)])",
        WORD,
    ),
    ("password", "phrase", r"pass[ -]?", rf"phrase{_FOR}{_IS}((?:[a-z]{{3,12}}[ -]){{2,7}}[a-z]{{3,12}})(?=$|[.\n,])", WORD),
    # What is given in a line that speaks of a password or of logging in.
    *(
        ("password", hint, rf"{_PASSWORD_NOUN}[^\n]{{0,50}}?", rf"{hint}{_VALUE}", _MIXED)
        for hint in _GIVEN_AFTER.split("|")
    ),
    *(
        ("password", hint, "", rf"{hint}{_VALUE}[^\n]{{0,40}}?{_PASSWORD_NOUN}", _MIXED)
        for hint in ("it's ", "here you go: ", "new one: ", "typing ", "tried ", "entered ")
    ),
    *(("credential", f"{user}{sign}", r"(?<![\w/.-])", rf"{user}{sign}{_VALUE}(?!\S)", _MIXED)
      for user in ("root", "admin") for sign in (":", " / ")),
    # A table whose last column holds passwords.
    (
        "password",
        "pass",
        r"[,;|\t] ?",
        rf"pass(?:word)?[ \t]{{0,4}}\|?\n(?:[|\s:-]{{1,40}}\n)?[^\n]{{1,60}}?[,;|\t] ?{_VALUE}[ |]{{0,3}}(?=\n|$)",
        _MIXED,
    ),
    *(("credential", sign, "", rf"{re.escape(sign)}([\w.~%/-]{{16,512}})", RANDOM) for sign in ("?code=", "&code=")),
    *(
        ("credential", path, r"https?://[^\s/]{3,60}(?:/[\w-]{1,20}){0,2}", rf"{path}([\w-]{{20,256}})(?![\w/-])", RANDOM)
        for path in ("/magic/", "/reset/", "/verify/", "/invite/", "/login/")
    ),
    ("password", "pass ", r"(?:login|user|username|network|ssid|wi-?fi|account|email|@)[^\n]{0,40} ", rf"pass (?:- |is )?{_VALUE}", _MIXED),
    ("password", "pass - ", "", rf"pass - {_VALUE}", _MIXED),
    ("password", "p: ", r"(?<![a-z])u(?:ser)?: ?\S{1,40}[ ,;/]{1,3}", rf"p: {_VALUE}", _MIXED),
    *(("password", hint, "", rf"{hint}(?: is|:| =){{1,2}} {_VALUE}(?=$|[\s.,;)])", _MIXED) for hint in ("wifi", "wi-fi", "wlan")),
    ("password", "use ", r"(?<![a-z])", rf"use {_VALUE} (?:to|for|when) [^\n]{{0,20}}?{_PASSWORD_NOUN}", _MIXED),
    *(
        (
            "password",
            noun,
            rf"(?<!\S)[\"'`]?([^\s\"'`,]{{6,64}})[\"'`]? (?:is|was|ist|war|es|era|est|était|é|è)"
            rf"(?: (?:my|the|a|our|your|his|her|their|das|mein|unser|la|mi|le|mon|a minha|minha|a|la mia|het|mijn|new|old"
            rf"|current|wifi|neue|nueva|nuevo|nouveau)){{0,3}} ",
            rf"{noun}(?![a-z])",
            _MIXED,
        )
        for noun in (
            "password", "pw", "passphrase", "passwort", "contraseña", "clave", "mot de passe", "mdp", "senha", "wachtwoord",
        )
    ),
    ("credential", "@", r"[\w.+-]{1,40}", rf"@[\w-]{{1,40}}(?:\.[\w-]{{1,20}}){{1,3}}(?: ?[:/|] ?| - | ){_VALUE}(?!\S)", _MIXED),
    ("credential", "ftp ", r"(?<![a-z])s?", r"ftp [\w.-]{1,40}:([^\s@/]{3,64})@", WORD),
    *(
        ("credential", hint, "", hint + _PAIR, MADE_UP)
        for hint in (
            "u/p", "vpn", "router", "logged in", "inloggen", "inloggegevens", "wifi", "wi-fi", "accesso", "acesso", "acceso", "connexion",
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
    ("credential", "bearer", r"(?<![a-z])", r"bearer:? {1,3}([a-z0-9._~+/=-]{20,})", RANDOM),
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
    ("password", "sshpass ", "", r"sshpass -p ?(?:\"([^\"\n]{3,64})|'([^'\n]{3,64})|([^\s\"']{3,64}))", WORD),
    ("password", "mysql", "", r"mysql[^\n|;]{0,80}? -p(?:\"([^\"\n]{3,64})|'([^'\n]{3,64}))", WORD),
    # A flag whose value is a password whatever the program is.
    *(
        ("password", flag, r"(?<=\s)", rf"{flag}[ =:]?(?:\"([^\"\n]{{3,64}})|'([^'\n]{{3,64}})|([^\s\"'-][^\s\"']{{3,64}}))", WORD)
        for flag in ("-storepass", "-keypass", "--passphrase", "-passin pass", "-passout pass", "/rp:")
    ),
    *(
        (
            "password",
            f"{program} ",
            r"(?<![a-z])",
            rf"{program} [^\n|]{{0,100}}?(?<=\s){flag}[\"']?([^\s\"'/-][^\s\"']{{3,127}})",
            WORD,
        )
        for program, flag in (
            ("7z", "-p"), ("7za", "-p"), ("rar", "-h?p"), ("unzip", "-p ?"), ("zip", "-p "), ("mongo", "-p ?"), ("mongosh", "-p ?"),
            ("mongodump", "-p ?"), ("mongorestore", "-p ?"), ("xfreerdp", "/p:"), ("mstsc", "/p:"), ("sqlcmd", "-p ?"), ("bcp", "-p ?"),
            ("psexec", "-p "), ("az", "-p "), ("ipmitool", "-p "), ("cqlsh", "-p "), ("influx", "-password "), ("podman", "-p "),
            ("oc", "-p "), ("nmcli", "password "), ("lftp", r"-u [^\s,]{1,40},"), ("smbclient", r"-u [^\s%]{1,40}%"),
            ("rpcclient", r"-u [^\s%]{1,40}%"), ("net user", r"[\w.-]{1,40} "), ("ftp", r"user \S{1,40} "), ("vault login", r"(?!\S*=)"),
            ("rabbitmqctl", r"(?:add_user|change_password) \S{1,40} "), ("snmpwalk", "-c "), ("mysqladmin", "password "), ("redis-cli", "auth "),
            ("convertto-securestring", "-string "), ("sqlplus", r"(?:-s )?[\w.]{1,40}/"), ("clickhouse-client", "--password[= ]"), ("aria2c", "--http-passwd="),
        )
    ),
    ("password", "net use", "", r"net use[^\n]{0,60}? \\{1,4}\S{1,60} ([^\s/*]\S{3,64})", MADE_UP),
    ("password", "securestring ", "", r"securestring [\"']([^\"'\n]{4,128})", WORD),
    ("secret", "| base64", r"echo (?:-n )?[\"']?([^\s\"']{6,128})[\"']? ?", r"\| base64(?! -d)", _MIXED),
    ("token", "<<<", r"(?:token|login|password)[^\n]{0,20}", r"<<< ?[\"']?([^\s\"']{8,256})", MADE_UP),
    ("session", "curl ", "", r"curl [^\n|]{0,200}?(?:-b|--cookie)[ =][\"']?[\w.-]{1,40}=([^\s;\"']{12,2048})", RANDOM),
    ("password", " by ", r"identified with \w{1,40}", r" by [\"']([^\"'\n]{4,128})", WORD),
    ("password", "jdbc:oracle", "", r"jdbc:oracle:\w{1,6}:[\w.]{1,40}/([^\s@\"']{3,64})@", WORD),
    ("credential", "digest ", r"authorization: ?", r"digest [^\n]{0,400}?response=[\"']?([0-9a-f]{32})", RANDOM),
    ("community", "snmp-server community ", "", r"snmp-server community (\S{3,64})", WORD),
    ("password", "enable ", r"(?m:^)\s{0,4}", r"enable (?:secret|password)(?: [0-9])? (\S{4,64})", WORD),
    ("password", "username ", "", r"username \S{1,40} (?:privilege [0-9]{1,2} )?(?:secret|password) [0-9] (\S{4,128})", WORD),
    # Calls that take a user and a password.
    *(
        (
            "password",
            called,
            "",
            rf"{called.replace('(', '[(]')}\s{{0,8}}(?:(?:[\"'][^\"'\n]{{0,120}}[\"']|[\w.]{{1,40}}),\s{{0,8}}){{1,2}}[\"']([^\"'\n]{{4,128}})[\"']",
            needed,
        )
        for called, needed in (
            ("connect(", MADE_UP), ("login(", MADE_UP), ("connection(", MADE_UP), ("credential(", MADE_UP), ("credentials(", MADE_UP),
            ("auth(", WORD), ("pdo(", MADE_UP), ("jwt.sign(", MADE_UP), ("authenticate(", MADE_UP), ("signin(", MADE_UP), ("hmac(", RANDOM),
        )
    ),
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
    r"([0-9]{4} [0-9]{4}\b|(?=[A-Za-z-]{0,9}[0-9])[A-Za-z0-9]{3,10}(?:-[A-Za-z0-9]{3,10}){0,7}"
    r"|[A-Z]{4,8}(?:-[A-Z]{4,8}){1,3}|[a-z]{5}-[a-z]{5}(?:-[a-z]{5})?)(?![A-Za-z0-9])"
)
_MAX_ITEMS = 24
_MIN_MIXED = 6
# Versions, dates, times, ids and addresses of mail have digits too.
_NO_PASSWORD = re.compile(
    r"v?[0-9]+[.:/-][0-9]|[0-9]{1,4}(?:st|nd|rd|th|h|ms|kb|mb|gb|k|m|pm|am|px|days?|min)\b|[^\s@]{1,64}@[\w-]{1,64}\.[a-z]|#|.*[\[\]{}=|\\]"
    r"|[A-Z]{1,6}-[0-9]+$|[0-9a-f]{7,64}$|(?i:utf|sha|iso|rfc|tls|ssl|http)-?[0-9]|[0-9a-fA-F]{8}-"
)
_COOKIES = re.compile(r"cookie\\{0,3}[\"']?[ ]{0,2}[:=,][ ]{0,2}\\{0,3}[\"']?([^\n\"']{1,4096})")
_COOKIE = re.compile(r"(?<![^;\s\"'])[\w.-]{0,40}(?:sess|sid|auth|token|jwt|login|remember)[\w.-]{0,40}=([^;\s]{1,2048})")
_MANIFEST_DATA = re.compile(r"kind:[ ]?[\"']?secret\b(?:[^\n]{0,200}\n){1,12}?(?:string)?data:[ ]?\n")
_MANIFEST_LINE = re.compile(r"[ ]{1,12}[\w.-]{1,80}:[ ]?[|>]?-?(?:\n[ ]{1,12})?[\"']?([^\s\"'|>]{4,8000})[\"']?[ ]*(?:\n|$)")
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
    yield from _manifests(reading)


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
    if rule.kind == "access_code" and _HARMLESS.search(plain.lower(), max(0, match.start() - 30), end + 20):
        return
    if rule.needed == _MIXED:
        is_mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and not _NO_PASSWORD.match(value)
        if is_mixed and len(value) >= _MIN_MIXED and strength(value, quoted=False) >= MADE_UP:
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


def _manifests(reading: Reading) -> Iterator[tuple[str, int, int]]:
    """The values of Kubernetes' manifests of secrets, which are in base64."""
    for place in (match.start() for match in re.finditer("kind: ?[\"']?secret", reading.lower)):
        data = _MANIFEST_DATA.match(reading.lower, place)
        line = data and _MANIFEST_LINE.match(reading.lower, data.end())
        while line:
            if "user" not in line.group()[:80] and not reading.plain[line.start(1) :].startswith(("$", "<", "{")):
                yield "secret", *line.span(1)
            line = _MANIFEST_LINE.match(reading.lower, line.end())
