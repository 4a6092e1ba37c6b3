"""Secrets in headers, URLs, commands, calls and files: rows for ``phrases``."""

# ruff: noqa: E501 (a row is read as one)

from __future__ import annotations

import re

from agent_memory_log.secrets.values import ANY, MADE_UP, MIXED, RANDOM, WORD

VALUE = r"[\"'`«“]?[ ]?([^\s\"'`,;()<>/«»“”]{6,64})"

# Kind, hint, what must end where the hint begins, pattern, how much the value must look like a secret.
COMMANDS: tuple[tuple[str, str, str, str, int], ...] = (
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
    ("url_password", "://", "", r"://[^\s/:@?#\"'<>]{0,256}:([^\s/@\"'<>]{1,256})@", ANY),
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
        for flag in ("-storepass", "-keypass", "--passphrase", "-passin pass", "-passout pass", "/rp:", "--secret-string")
    ),
    *(
        (
            "password",
            f"{program} ",
            r"(?<![a-z])",
            rf"{program} [^\n|]{{0,100}}?(?<=\s){flag}(?![0-9.]{{0,20}}[0-9]:[0-9])[\"']?([^\s\"'/-][^\s\"']{{3,127}})",
            WORD,
        )
        for program, flag in (
            ("7z", "-p"), ("7za", "-p"), ("rar", "-h?p"), ("unzip", r"-p(?! ?\S*\.) ?"), ("zip", "-p "), ("mongo", "-p ?"), ("mongosh", "-p ?"),
            ("mongodump", "-p ?"), ("mongorestore", "-p ?"), ("xfreerdp", "/p:"), ("mstsc", "/p:"), ("sqlcmd", "-p ?"), ("bcp", "-p ?"),
            ("psexec", "-p "), ("az login", "-p "), ("ipmitool", "-p "), ("cqlsh", "-p "), ("influx", "-password "), ("podman login", "-p "),
            ("oc login", "-p "), ("nmcli", "password "), ("lftp", r"-u [^\s,]{1,40},"), ("smbclient", r"-u [^\s%]{1,40}%"),
            ("rpcclient", r"-u [^\s%]{1,40}%"), ("net user", r"[\w.-]{1,40} "), ("ftp", r"user \S{1,40} "), ("vault login", r"(?!\S*=)"),
            ("rabbitmqctl", r"(?:add_user|change_password) \S{1,40} "), ("snmpwalk", "-c "), ("mysqladmin", "password "), ("redis-cli", "auth "),
            ("convertto-securestring", "-string "), ("sqlplus", r"(?:-s )?[\w.]{1,40}/"), ("clickhouse-client", "--password[= ]"), ("wpa_passphrase", r"\S{1,32} "), ("gh secret set", "(?:--body|-b)[ =]"), ("aria2c", "--http-passwd="),
        )
    ),
    ("password", "net use", "", r"net use[^\n]{0,60}? \\{1,4}\S{1,60} ([^\s/*]\S{3,64})", MADE_UP),
    ("password", "securestring ", "", r"securestring [\"']([^\"'\n]{4,128})", WORD),
    ("secret", "| base64", r"echo (?:-n )?[\"']?([^\s\"']{6,128})[\"']? ?", r"\| base64(?! -d)", MIXED),
    ("token", "<<<", r"(?:token|login|password)[^\n]{0,20}", r"<<< ?[\"']?([^\s\"']{8,256})", MADE_UP),
    ("session", "curl ", "", r"curl [^\n|]{0,200}?(?:-b|--cookie)[ =][\"']?[\w.-]{1,40}=([^\s;\"']{12,2048})", RANDOM),
    ("password", " by ", r"identified with \w{1,40}", r" by [\"']([^\"'\n]{4,128})", WORD),
    ("password", "jdbc:oracle", "", r"jdbc:oracle:\w{1,6}:[\w.]{1,40}/([^\s@\"']{3,64})@", WORD),
    ("credential", "digest ", r"authorization: ?", r"digest [^\n]{0,400}?response=[\"']?([0-9a-f]{32})", RANDOM),
    *(
        ("password", hint, "", rf"{hint}(?:[0-9] )?[\"']?([^\s\"']{{4,64}})", MADE_UP)
        for hint in ("isakmp key ", "tacacs-server key ", "radius-server key ", "key-string ", "pre-shared-key ", "chap password ", "pre-share key ", "wpa-psk ")
    ),
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
            ("connect(", MADE_UP), ("login(", MADE_UP), ("getconnection(", MADE_UP), ("credential(", MADE_UP), ("credentials(", MADE_UP),
            ("auth(", WORD), ("pdo(", MADE_UP), ("jwt.sign(", MADE_UP), ("authenticate(", MADE_UP), ("signin(", MADE_UP), ("hmac(", RANDOM),
        )
    ),
    ("password", "redis-cli ", "", r"redis-cli (?:(?!redis-cli)[^\n|]){0,80}?-a [\"']?([^\s\"']{4,128})", WORD),
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
    ("password", " -u ", "", r" -u [\"']?[^\s\"']{1,80}[\"']? -p ?(?![0-9.]{0,20}[0-9]:[0-9])[\"']?([^\s\"']{4,128})", MADE_UP),
    *(
        ("password", called, r"(?:pass|pwd|psw)[^\n]{0,40}", rf"{re.escape(called)}[\"']([^\"'\n]{{4,64}})[\"']", WORD)
        for called in ("send_keys(", "sendkeys(", ".type(", ".fill(")
    ),
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
