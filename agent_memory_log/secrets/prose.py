"""Secrets that people say: codes, answers, passwords in a sentence: rows for ``phrases``."""

# ruff: noqa: E501 (a row is read as one)

from __future__ import annotations

import re

from agent_memory_log.secrets.commands import VALUE
from agent_memory_log.secrets.values import ANY, LIST, MADE_UP, MIXED, RANDOM, WORD

_IS = (
    r"[\"']?(?:'s| (?:is|are|will be|was|now|still|es|est(?: le| la)?|c'est|ist|sind|lautet|bleibt|blijft|è|é|era|är|er|je|reads|changed to"
    r"|set to|stays|remains|sigue(?: siendo)?|reste|rimane|resta|continua(?: a ser| sendo| essendo)?|fica|immer noch|nog(?: steeds)?"
    r"|toujours|ancora|sempre|siempre|ahora|maintenant|agora|ora|jetzt|nun|nu|uh|um|(?:from|as of|starting|ab|desde|dès|vanaf) [a-zäöü]{3,12}"
    r"|=(?!=)|->?|→)|:|=(?!=)|は|是){1,4}[ \t\"'(]{0,3}"
)
_FOR = (
    r"(?: ?\([^\n()]{1,40}\))?(?: (?:for|to|of|on|at|from|del?|du|de la|meine[rsm]?|fürs?|zum|zur|vom|von|der|des|da|do|di|dell[ae]|im|in|pour|para"
    r"|per|voor|van|they|i|we|you|he|she|it|that|which|que|qui|che|the) [^\n.,;:!?=\"]{1,40}?)?"
)
_SPOKEN = (
    "(?:zero|oh|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    "|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|star|pound|hash|null|eins|zwei|drei|vier|fünf|sechs|sieben|acht|neun|cero|uno"
    "|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|zéro|un|deux|trois|quatre|cinq|sept|huit|neuf|due|tre|quattro|cinque|sei"
    "|sette|otto|nove|um|dois|três|quatro|sete|oito|nul|een|twee|vijf|zes|zeven|negen)"
)
_SAID = rf"(?:{_SPOKEN}[ ,-]{{1,2}}){{3,9}}{_SPOKEN}\b|[0-9](?: [0-9]){{3,7}}\b(?! ?/)(?: (?:star|pound|hash))?"
_DIGITS = rf"({_SAID}|[0-9]{{2,4}}[ -][0-9]{{3,4}}\b|[*#]?[0-9]{{4,8}}\b#?)"
_CODE = r"([0-9]{2,4}[ -][0-9]{3,4}\b|[*#][0-9]{4,8}#?|(?=[a-z-]{0,9}[0-9])[a-z0-9]{4,10}\b#?)"
_MANY_DIGITS = (
    rf"({_SAID}|"
    r"[0-9]{2,4}[ -][0-9]{3,4}\b|[*#]?[0-9]{4,8}\b(?![.,][0-9])#?"
    r"|(?=[a-z0-9]{4,8}\b)(?:[a-z][0-9]{3,6}[a-z]?|[0-9]{2,6}[a-z][0-9]{0,4})\b)"
)
_CODE_NOUNS = r"code|otp|password|código|codigo|codice|passwort|mot de passe|\bpin\b|\bpuk\b|\btan\b|combo|senha"
_LOGIN_WORDS = (
    r"(?<![a-z])(?:pass(?:w(?:or|ro)d|wort|phrase|code|wd)?s?|pwd?|mdp|mot de passe|contrase[ñn]a|clave|senha|wachtwoord"
    r"|kennwort|parola|cred(?:ential)?s|log(?:ged|ging)? ?(?:in|on)|sign(?:ed)? in|wi-?fi|wlan|psk|sudo|ssh in|vpn|entrar?|entrer|entrare|inicia sesi[oó]n|melde dich"
    r"|anmelden|einloggen|connecte[rz]?|inloggen|aanmelden|acced[ei]|accedi)(?![a-z])"
)
_SERVICES = "(?:netflix|spotify|hulu|disney|steam|gmail|icloud|paypal|amazon|facebook|instagram|hotmail|outlook|twitch|roblox|playstation|xbox)"
_SPELLED = (
    " all lower| lower ?case| no spaces| all one word| one word| all caps| tudo junto| todo junto| tutto attaccato| alles klein"
    "| tout attaché| aan elkaar| en minúsculas| with a capital| tout en min| kleingeschrieben| zusammengeschrieben"
)
_NO_WORD = r"(?!(?:the|not|and|but|was|has|for|you|your|must|should|please|with|that|can|will|are|its|this|when|then|too|very|wrong|same)\b)"
_PHRASE = rf"((?:{_NO_WORD}[a-z]{{3,12}}[ -]){{3,7}}{_NO_WORD}[a-z]{{3,12}})(?=$|[\"'.\n,;!)]| and )"
_QUESTIONS = (
    r"maiden name|first (?:pet|car|school|teacher|job)|name of (?:your|the) (?:pet|school)|gr[eo]w up|were you born"
)
_CHANGED = "(?:chang|reset|updat|set|switch|rotat|cambi|änder|setz|wijzig|verander|mud|modifi)"
_GIVEN_AFTER = (
    "typing |typed |entered |new one |it's | its |it is | one is | one was | one: | jetzt | nun |changed it to |reset it to |set it to |changed to |reset to "
    "|set to |updated to |with | w/ |now | use | try | type | wants |c'est |ahora es |ora è |agora é |is nu |es ist |mit | avec | con | com "
    "| met |probier mal |probier |versuch mal |versuch |nimm |essaie |essaye |prueba |prova |tenta |probeer |gebruik |utilise |usa "
    "| pon | mets | metti | põe | gib | geef | ingresa | escribe | saisis | inserisci | digita | typ | back to "
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
    r"(?:s|entials?| details?| data)?(?: (?:for|to|of|on|at|für|fürs|zum|vom|para|pour|per|del?|du|do|da|della|van|voor) [^\n:]{1,30}?)?"
    r"(?: are| is| sind| sont| son| ?:| -| as| with| w/| met| mit| con| avec|)(?: ?:)? [\"']?[\w.@+-]{2,64}"
    r"(?: ?/{1,2} ?| ?\| ?|:)([^\s\"'(),]{4,80})"
)

# Kind, hint, what must end where the hint begins, pattern, how much the value must look like a secret.
PROSE: tuple[tuple[str, str, str, str, int], ...] = (
    ("pin", "pin", r"(?<![a-z0-9])[mt]?", rf"pin[2s]?(?:[ -]?(?:code|number|nummer|kode))?{_FOR}{_IS}([0-9]{{4,8}})\b", ANY),
    ("pin", "pin", r"(?<![a-z0-9])", rf"pin(?: ?code)?{_FOR},? ([0-9]{{4,6}})(?! is| es | ist| est | è | é |[0-9a-z-]|[.,][0-9])", ANY),
    ("pin", "pin", r"(?<![a-z0-9])[mt]?", r"pins?(?: for [a-z ]{2,20})?(?: used to be| to| from| is) ([0-9]{4,6})\b(?![.,][0-9])", ANY),
    *(
        ("pin", hint, r"(?<![a-z])pins?[^\n.]{0,20} [0-9]{4,6}", rf"{hint}([0-9]{{4,6}})\b", ANY)
        for hint in (" to ", " and ", ", ", " & ")
    ),
    ("pin", "pin ", r"(?<![a-z0-9])[mt]", r"pin ([0-9]{4,6})\b", ANY),
    ("pin", "geheimzahl", "", rf"geheimzahl{_FOR}(?:{_IS}| )([0-9]{{4,8}})\b", ANY),
    ("pin", "puk", r"(?<![a-z])", rf"puk(?:[ -]?(?:code|nummer))?{_FOR}(?:{_IS}| )([0-9]{{6,10}})\b", ANY),
    ("pin", "clave ", "", r"clave ([0-9]{4,8})\b", ANY),
    ("password", "pass", r"(?<![a-z])", r"pass(?:word|code)[ ]([0-9]{4,8})(?![0-9a-z.,-]| [a-z]{4})", ANY),
    # A code that is not said to be harmless.
    ("access_code", "code", r"[a-zäöüéèß',]\"? ?", rf"codes?{_FOR}{_IS}{_MANY_DIGITS}", ANY),
    ("access_code", "code", r"(?m:^)", rf"codes?(?= \w){_FOR}{_IS}{_MANY_DIGITS}", ANY),
    ("access_code", "digo", r"c[oó]", rf"digo{_FOR}{_IS}{_MANY_DIGITS}", ANY),
    ("access_code", "codice", "", rf"codice{_FOR}(?: [a-z]{{2,12}})?{_IS}{_MANY_DIGITS}", ANY),
    (
        "access_code",
        "cod",
        r"(?<![a-z])",
        (rf"(?:cod(?:e|ice)|c[oó]digo) (?:d[eoiu]\w{{0,3}} |d'|della |du |de la )?"
        rf"(?:{_PLACES}|{_FRENCH_PURPOSES}|entr[ée]e)(?: |{_IS}){_MANY_DIGITS}"),
        ANY,
    ),
    (
        "access_code",
        "code ",
        r"(?<![a-zäöü])(?:tresor|sperr|haus|tür|haustür|alarm|zugangs|tor|garagen|deur|toegangs|poort|digi|pin|pass){1,2}",
        rf"code {_MANY_DIGITS}",
        ANY,
    ),
    *(
        (
            "access_code",
            place,
            r"(?<![a-z])",
            (rf"{place}(?: [a-z]{{2,9}}){{0,4}}?(?:'s|,? it's| is| code| combo| pin| opens with| with| takes| wants| expects| asks for|:| =| es| est| ist| è| é)"
            rf"[ :]{{1,2}}{_DIGITS}(?! ?(?:mm|cm|m|am|pm|inch|usd|eur|met|feet|miles|km))"),
            ANY,
        )
        for place in _PLACES.replace("key ?", "key").replace("keysafe", "key safe").split("|")
    ),
    *(
        ("access_code", place, "", rf"{place} {_DIGITS}(?! ?[a-z]?m )", ANY)
        for place in (
            "bike lock", "lock combo", "hotel safe", "alarm panel", "lockbox,", "disarm with", "disarm", "buzz in with", "opens with", "entry is", "caja fuerte",
            "cassaforte", "tresor", "lockbox", "key safe", "keypad",
        )
    ),
    ("access_code", "gate #", "", r"gate (#[0-9]{4,8})\b", ANY),
    *(
        (
            "access_code",
            verb,
            r"(?<![a-z])",
            rf"{verb}(?: in| the code| code)? {_DIGITS} [^\n.]{{0,24}}?(?:{_PLACES}|keypad|disarm|verify|confirm|factor|authenticat|log ?in|sign ?in)",
            ANY,
        )
        for verb in ("punch", "enter", "type", "press", "dial", "key in", "tape", "tapez", "use", "introduce", "digita")
    ),
    # What is typed at a door or an alarm that the line speaks of.
    *(
        ("access_code", verb, rf"(?:{_PLACES}|entrance|porte|immeuble|puerta|porta|tür|entr(?:ar|er)\b|code)[^\n]{{0,64}}(?<![a-z])", rf"{verb} (?:in |ein |le |il |el |code )?{_MANY_DIGITS}", ANY)
        for verb in ("punch", "enter", "type", "press", "tape", "tapez", "tippe", "marca", "pulsa", "digita", "code", "codice", "código", "codigo")
    ),
    *(
        ("access_code", hint, r"(?<![a-z])", rf"{hint}(?: [a-z]{{2,9}}){{0,4}}?, (?!(?:19|20)[0-9]{{2}}\b){_DIGITS}(?! ?[a-z]?m )", ANY)
        for hint in ("alarm", "keypad", "lockbox", "key safe", "keysafe", "intercom", "buzzer", "digicode", "alarme", "allarme", "alarma")
    ),
    *(
        ("access_code", hint, rf"(?<![a-z])(?:tor|tür|{_PLACES})[^\n]{{0,40}} {_DIGITS}", rf"{hint}(?![a-z])", ANY)
        for hint in (" eingeben", " eintippen", " ein", " drücken", " intoetsen")
    ),
    *(
        ("access_code", hint, r"(?<![a-z])(?:pass ?)?", rf"{hint}{_FOR}{_IS}({_SAID})", ANY)
        for hint in ("code", "pin", "código", "codice", "combination", "password")
    ),
    *(
        ("access_code", hint, r"(?<![a-z])(?:votre|ton|ihr|dein|tu|su|seu|sua|teu|tuo|suo|jouw|uw) ", rf"{hint}(?: de)? [a-z]{{2,16}}{_IS}{_DIGITS}", ANY)
        for hint in ("code", "código", "codice")
    ),
    ("pin", "nip", r"(?<![a-z])", rf"nip(?: de [a-z ]{{2,20}})?(?:{_IS}| )([0-9]{{4}})\b", ANY),
    ("wallet_key", "0x", r"(?<![a-z])(?:pk|priv(?:ate)?_?k(?:ey)?|private key)[\"' ]{0,2}(?: is|=|:|)[ \"'`]{0,3}", r"0x[0-9a-f]{64}\b", ANY),
    (
        "access_code",
        "says ",
        r"(?:authenticator|authy|app|sms|text|message|it|phone)[^\n.]{0,15} ?",
        r"says ([0-9]{6}|[0-9]{3} [0-9]{3})\b",
        ANY,
    ),
    *(
        ("access_code", hint, r"(?<![a-z0-9])", rf"{hint}(?: token| code)?{_FOR}(?:{_IS}| )([0-9]{{6,8}}|[0-9]{{3}} [0-9]{{3}})\b", ANY)
        for hint in ("2fa", "mfa", "totp", "otp")
    ),
    *(
        ("access_code", hint, r"(?<![a-z])", rf"{hint}([0-9]{{3}}[ -]?[0-9]{{3}})\b(?![.,-][0-9])", ANY)
        for hint in ("sent me ", "texted me ", "verification: ", "entry code for guests ")
    ),
    ("access_code", "code ", r"(?m:^)", r"code ([0-9]{6})(?=$|[\n.,])", ANY),
    (
        "access_code",
        "tan",
        r"(?<![a-z])(?:m|i|sms-?|push-?|photo-?|chip-?)?",
        rf"tan(?: (?:für|fuer|zur|zum|for)[^\n]{{0,50}}?)?{_IS}([0-9]{{6,8}})\b",
        ANY,
    ),
    ("pin", "code pin", "", rf"code pin{_FOR}{_IS}([0-9]{{4,8}})\b", ANY),
    ("access_code", "code", _QUALIFIED, rf"codes?{_FOR}{_IS}{_CODE}", ANY),
    ("access_code", "code", _QUALIFIED, rf"code {_DIGITS}", ANY),
    ("access_code", "code ", "", rf"code (?:for|to|of) (?:the |our |my )?(?:{_QUALIFIERS}){_IS}{_CODE}", ANY),
    ("access_code", "code", _SENT, rf"code(?: is|:)? {_DIGITS}", ANY),
    ("access_code", "use code ", "", rf"use code {_DIGITS} to (?:log|sign|verify|confirm|continue|reset)", ANY),
    ("access_code", "code", r"pass[ -]?", rf"code{_FOR}{_IS}{_CODE}", ANY),
    ("access_code", "code", rf"(?:{_GERMAN_QUALIFIERS})-?", rf"code{_FOR}{_IS}{_CODE}", ANY),
    ("access_code", "code d", "", rf"code d(?:e|u|es)? ?'?(?:{_FRENCH_PURPOSES}){_FOR}{_IS}{_CODE}", ANY),
    ("access_code", "digo de ", "", rf"digo de (?:{_SPANISH_PURPOSES}){_FOR}{_IS}{_CODE}", ANY),
    ("access_code", "codice di ", "", rf"codice di (?:verifica|sicurezza|accesso|conferma){_FOR}{_IS}{_CODE}", ANY),
    ("access_code", "otp", r"(?<![a-z])", rf"otp(?: code)?{_IS}{_DIGITS}", ANY),
    ("access_code", "one-time ", "", rf"one-time (?:password|passcode|pin|code){_FOR}{_IS}{_DIGITS}", ANY),
    *(
        ("access_code", hint, before, rf"{hint}{_FOR}(?:{_IS}| )([0-9]{{1,2}}[ -][0-9]{{1,2}}[ -][0-9]{{1,2}})\b", ANY)
        for hint, before in (("ombination", ""), ("combo", "(?:safe|locker|lock) "))
    ),
    *(
        ("access_code", words, rf"(?<![a-z0-9-])(?:g-)?{_DIGITS}", rf"{words} [^\n.]{{0,40}}?(?:{_CODE_NOUNS})", ANY)
        for words in (
            " is your", " as your", " as the", " as my", " is my", " is our", " is the", " to confirm", " es tu", " es su", " est votre", " ist ihr", " ist dein",
            " è il", " é o seu", " is otp", " by sms", " via sms", " by text", " per sms",
        )
    ),
    *(
        ("card_code", hint, r"(?<![a-z])", rf"{pattern}{_FOR}(?:{_IS}| )([0-9]{{3,4}})\b", ANY)
        for hint, pattern in (
            ("cv", "cv(?:v|c|n)?2?(?: code| number)?"), ("csc", "csc"), ("cid", "cid"), ("security code", "security code"),
            ("cryptogramme", "cryptogramme(?: visuel)?"), ("prüf", "prüf(?:ziffer|nummer)"), ("kartenprüf", "kartenprüf(?:ziffer|nummer)"),
            ("verification code", "verification code"), ("3 digit", "3 digits?(?: code)? (?:on|at|behind)"), ("three digit", "three digits?(?: code)? (?:on|at|behind)"),
            ("digo de segur", "digo de segur(?:idad|an[cç]a)"), ("code de sécurité", "code de sécurité"), ("codice di sicurezza", "codice di sicurezza"),
            ("beveiligingscode", "beveiligingscode"), ("4 digit", "4 digits?(?: code)? (?:on|at|behind)"),
        )
    ),
    (
        "recovery_code",
        "code",
        r"(?:recovery|backup|back-up|rescue|scratch|emergency|2fa)(?: \w{2,10})?[ _-]",
        r"codes?[\"']?(?: ?\([^\n)]{0,40}\))?(?: for [^\n.,;:!?]{1,40}?(?=[\n:,]| are| is))?(?:[,(][^\n:]{1,50}(?=:\n)| are| is|)[ \n\t\":=\[(-]{0,8}",
        LIST,
    ),
    ("recovery_code", "key", "(?:recovery|bitlocker)(?: recovery)? ", rf"key{_FOR}(?:{_IS}| )([0-9]{{6}}(?:-[0-9]{{6}}){{3,7}})", ANY),
    ("recovery_code", "bitlocker", "", r"bitlocker[^\n]{0,30}?\b([0-9]{6}(?:-[0-9]{6}){7})\b", ANY),
    ("license_key", "serial", "", rf"serial(?: number| no| key)?{_FOR}(?:{_IS}| )([a-z0-9]{{4,6}}(?:-[a-z0-9]{{4,6}}){{3,5}})\b", ANY),
    ("recovery_code", "recovery key", "", rf"recovery key{_FOR}(?:{_IS}| )([a-z0-9]{{4}}(?:-[a-z0-9]{{4}}){{3,7}})\b", ANY),
    (
        "license_key",
        "key",
        r"(?:product|licen[sc]e|activation|serial|windows)[^\n]{0,20}",
        rf"key{_FOR}(?:{_IS}| )([a-z0-9]{{4,6}}(?:-[a-z0-9]{{4,6}}){{3,5}})\b",
        ANY,
    ),
    ("recovery_code", "2fa backup ", "", r"2fa backup ([a-z0-9]{4,8}-[a-z0-9]{4,8})\b", ANY),
    ("totp_secret", "key", "(?:setup|2fa|totp|authenticator|secret) ", rf"key{_FOR}(?:{_IS}| )([a-z2-7]{{4}}(?: [a-z2-7]{{4}}){{3,7}})\b", ANY),
    ("recovery_code", "wiederherstellungscode", "", rf"wiederherstellungscodes?{_IS}", LIST),
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
    *(
        ("security_answer", hint, "", rf"{hint}{_FOR}(?: is|:| =|=|\?| es| est| ist| è| é|){{1,2}}(?: a:)? ?[\"']?([^\n.,;\"'()]{{2,40}})", WORD)
        for hint in ("maiden name", "apellido de soltera", "nom de jeune fille", "mädchenname", "cognome da nubile", "nome de solteira", "meisjesnaam")
    ),
    ("security_answer", "grew up", r"(?:secur|recovery|secret)[^\n]{0,70}", r"grew up(?: on| in)?(?: is| was|:| =|=|\?){1,2} ?[\"']?([^\n.,;\"'()]{2,40})", WORD),
    ("security_answer", "? ", rf"(?:{_QUESTIONS})[^\n?]{{0,30}}", r"\? [a-z]{1,12}: ([^\n.,;\"'()?]{2,40})(?=$|[\n.,;)])", WORD),
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
    ("password", "phrase", r"pass[ -]?", rf"phrase{_FOR}{_IS}{_PHRASE}", ANY),
    ("password", "phrase", r"pass[ -]?", rf"phrase{_FOR}{_IS}((?:[a-z]{{3,12}}[ -]){{2,7}}[a-z]{{3,12}})(?=$|[\"'.\n,;!)])", WORD),
    (
        "password",
        "master",
        r"(?:bitwarden|1password|keepass\w{0,4}|lastpass|dashlane|keychain)(?:'s)? ",
        rf"master(?: password| pass| pw)?{_FOR}{_IS}{_PHRASE}",
        ANY,
    ),
    # What is given in a line that speaks of a password or of logging in.
    *(
        ("password", hint, rf"{_LOGIN_WORDS}[^\n]{{0,50}}?", rf"{hint}{VALUE}", MIXED)
        for hint in _GIVEN_AFTER.split("|")
    ),
    *(
        ("password", hint, rf"{_CHANGED}[^\n]{{0,24}}{_LOGIN_WORDS}[^\n]{{0,40}}?|{_LOGIN_WORDS}[^\n]{{0,30}}{_CHANGED}[^\n]{{0,20}}", rf"{hint}{VALUE}", MIXED)
        for hint in (" to ", "from ", " naar ", " para ", " auf ")
    ),
    *(
        ("password", hint, rf"{_CHANGED}[^\n]{{0,24}}{_SERVICES}[^\n]{{0,40}}", rf"{hint}{VALUE}", MIXED)
        for hint in (" to ", "its ", "it's ", "now ", " auf ", " a ", " para ")
    ),
    *(
        ("password", hint, r"(?<!\S)([^\s\"'`,]{6,64})", rf"{hint}(?![a-z])", MIXED)
        for hint in (" gets you in", " lets you in", " logs you in", " gets me in", " unlocks it", " should get you in", " will get you in")
    ),
    *(
        ("password", hint, rf"{_LOGIN_WORDS}[^\n]{{0,50}}(?: is|'s|:| es| é| ist| est| è| type) ([^\s\"',]{{6,64}}),?", rf"{hint}", WORD)
        for hint in _SPELLED.split("|")
    ),
    *(("password", hint, r"(?<![a-z])(?:login|log-in|creds?)[^\n.]{0,40}", rf"{hint}{VALUE}", MIXED) for hint in (" is literally ", " is still ")),
    *(
        ("password", hint, r"(?:unlock|decrypt|unzip|extract|open (?:the|it))[^\n]{0,40}", rf"{hint}(?=\S{{0,30}}[0-9!#$%&*@+?]\S){VALUE}", MADE_UP)
        for hint in ("type ", "enter ", "use ")
    ),
    *(
        ("password", hint, r"(?:birth ?(?:year|day)|(?:pw|password) hint|(?:dog|cat|pet)'?s? name|with a bang|exclamation)[^\n]{0,40}", rf"{hint}{VALUE}", MIXED)
        for hint in (" so ", "that's ", "makes ", "= ")
    ),
    *(
        ("password", hint, r"(?<!\S)([^\s\"']{6,64})", hint, MADE_UP)
        for hint in (
            " comme mot de passe", " comme mdp", " como contraseña", " como clave", " como senha", " come password", " als passwort", " als wachtwoord",
        )
    ),
    *(
        ("password", hint, "", rf"{hint}{VALUE}[^\n]{{0,40}}?{_LOGIN_WORDS}", MIXED)
        for hint in ("reset it to ", "set it to ", "changed it to ", "it's ", "here you go: ", "new one: ", "typing ", "tried ", "entered ")
    ),
    *(("credential", f"{user}{sign}", r"(?<![\w/.-])", rf"{user}{sign}(?! ){VALUE}(?!\S)", MIXED)
      for user, sign in (("root", ":"), ("root", " / "), ("admin", ":"))),
    # A table whose last column holds passwords.
    (
        "password",
        "pass",
        r"[,;|\t] ?",
        rf"pass(?:word)?[ \t]{{0,4}}\|?\n(?:[|\s:-]{{1,40}}\n)?[^\n]{{1,60}}?[,;|\t] ?{VALUE}[ |]{{0,3}}(?=\n|$)",
        MIXED,
    ),
    *(("credential", sign, "", rf"{re.escape(sign)}([\w.~%/-]{{16,512}})", RANDOM) for sign in ("?code=", "&code=")),
    *(
        ("credential", path, r"https?://[^\s/]{3,60}(?:/[\w-]{1,20}){0,2}", rf"{path}([\w-]{{20,256}})(?![\w/-])", RANDOM)
        for path in ("/magic/", "/reset/", "/verify/", "/invite/", "/login/")
    ),
    ("password", "pass ", r"(?:login|user|username|network|ssid|wi-?fi|account|email|@)[^\n]{0,40} ", rf"pass (?:- |is )?{VALUE}", MIXED),
    ("password", "pass - ", "", rf"pass - {VALUE}", MIXED),
    ("password", "p: ", r"(?<![a-z])u(?:ser)?: ?\S{1,40}[ ,;/]{1,3}", rf"p: {VALUE}", MIXED),
    *(("password", hint, "", rf"{hint}{_FOR}(?:'s| is|:| =| es| é| est| ist| è){{1,2}} {VALUE}(?=$|[\s.,;)])(?!,? (?:and|with|und|mit) )", MIXED) for hint in ("wifi", "wi-fi", "wlan")),
    ("password", "use ", r"(?<![a-z])", rf"use {VALUE} (?:to|for|when) [^\n]{{0,20}}?{_LOGIN_WORDS}", MIXED),
    *(
        ("password", f"{verb} ", r"(?<![a-z])", rf"{verb} {VALUE} (?:to|for|para|pour|für|per|om|voor|zum) [^\n]{{0,20}}?{_LOGIN_WORDS}", MIXED)
        for verb in ("try", "usa", "utilise", "nimm", "gebruik", "benutz", "benutze", "prueba", "prova")
    ),
    *(
        (
            "password",
            noun,
            (r"(?<!\S)[\"'`]?([^\s\"'`,]{6,64})[\"'`]? (?:is|was|ist|war|es|era|est|était|é|è)"
            r"(?: (?:my|the|a|our|your|his|her|their|das|mein|unser|la|mi|le|mon|a minha|minha|a|la mia|het|mijn|new|old"
            r"|current|wifi|neue|nueva|nuevo|nouveau)){0,3} "),
            rf"{noun}(?![a-z])",
            MIXED,
        )
        for noun in (
            "password", "pw", "passphrase", "passwort", "contraseña", "clave", "mot de passe", "mdp", "senha", "wachtwoord",
        )
    ),
    ("credential", "@", r"[\w.+-]{1,40}", rf"@[\w-]{{1,40}}(?:\.[\w-]{{1,20}}){{1,3}}(?::(?! )| [/|] | - ){VALUE}(?!\S)", MIXED),
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
)  # fmt: skip
