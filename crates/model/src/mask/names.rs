//! Names of variables, options, labels and keys that say that their value is a secret.

/// The beginning of every hidden value.
pub(super) const MARK: &str = "••••";

/// The certainty with which a name says that its value is a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Telling {
    /// It does not.
    No,
    /// Its value is hidden, and is too uncertain to be searched for elsewhere unless it is long.
    Weakly,
    Surely,
}

/// Parts of a name that surely say that its value is a secret.
const PARTS: &[&str] = &[
    "PASSWORD",
    "PASSWD",
    "PASSWRD",
    "PASSPHRASE",
    "SECRET",
    "TOKEN",
    "APIKEY",
    "API_KEY",
    "ACCESSKEY",
    "ACCESS_KEY",
    "ACCOUNTKEY",
    "ACCOUNT_KEY",
    "PRIVATEKEY",
    "PRIVATE_KEY",
    "CREDENTIAL",
    "BASICAUTH",
    "BASIC_AUTH_USERS",
    "DIGESTAUTH",
    "AUTHKEY",
    "ENCRYPTIONKEY",
    "MASTERKEY",
    "SIGNINGKEY",
    "AUTHORIZATION",
    "REQUIREPASS",
    "MASTERAUTH",
    "WEBHOOK",
];

/// Words of a name that surely say so.
const SURE: &[&str] = &["PASS", "PWD", "PW", "CREDS", "JWT", "PSK"];

/// Words of a name that may say so.
const WEAK: &[&str] = &["KEY", "KEYS", "AUTH", "DSN", "SALT", "COOKIE", "SIGNATURE", "CERT", "PRIVATE"];

/// Last words of names whose values only describe a secret: `AUTH_METHOD`, `TOKEN_TTL`.
const DESCRIBING: &[&str] = &[
    "METHOD",
    "METHODS",
    "TYPE",
    "MODE",
    "ENABLED",
    "ENABLE",
    "DISABLED",
    "REQUIRED",
    "ALGORITHM",
    "TTL",
    "EXPIRY",
    "EXPIRES",
    "EXPIRATION",
    "LIFETIME",
    "LENGTH",
    "TIMEOUT",
    "INTERVAL",
    "NAME",
    "DOMAIN",
    "HOST",
    "PORT",
    "ISSUER",
    "PROVIDER",
    "ENDPOINT",
    "ADDRESS",
    "USER",
    "USERNAME",
];

/// Last words of names that begin with `KEY` and are about keys: `KEY_PREFIX`, `key_buffer_size`.
const ABOUT_KEYS: &[&str] = &[
    "PREFIX",
    "SUFFIX",
    "PATTERN",
    "FORMAT",
    "VERSION",
    "ID",
    "SIZE",
    "BITS",
    "COUNT",
    "BUFFER",
    "CACHE",
    "FILE",
    "PATH",
    "DIR",
    "DIRECTORY",
    "USAGE",
    "ROTATION",
    "SERIALIZER",
    "DESERIALIZER",
    "CONVERTER",
];

/// Words that end in `PASS` and name no password.
const NOT_PASSWORDS: &[&str] = &["COMPASS", "BYPASS", "ENCOMPASS", "SURPASS"];

pub(super) fn telling(name: &str) -> Telling {
    let name = in_words(name);
    let words: Vec<&str> = name.split('_').filter(|word| !word.is_empty()).collect();
    let last = words.last().copied().unwrap_or_default();
    if DESCRIBING.contains(&last) || words.contains(&"PUBLIC") {
        return Telling::No;
    }
    // `TOKEN_URL` is where tokens are issued. The URL of a webhook is itself the secret.
    if matches!(last, "URL" | "URI") && !name.contains("WEBHOOK") {
        return Telling::No;
    }
    let is_password =
        |word: &str| (word.ends_with("PASS") || word.ends_with("PWD")) && !NOT_PASSWORDS.contains(&word);
    let begins_with_key = words.first().is_some_and(|word| ["KEY", "KEYS"].contains(word));
    let is_about_keys = begins_with_key && ABOUT_KEYS.contains(&last);
    if PARTS.iter().any(|part| name.contains(part))
        || words.iter().any(|word| SURE.contains(word) || is_password(word))
    {
        Telling::Surely
    } else if words.iter().skip(usize::from(is_about_keys)).any(|word| WEAK.contains(word)) {
        Telling::Weakly
    } else {
        Telling::No
    }
}

/// `accountKey`, `account-key` and `account.key` as `ACCOUNT_KEY`.
fn in_words(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    let mut is_after_small = false;
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && is_after_small {
            words.push('_');
        }
        is_after_small = letter.is_ascii_lowercase() || letter.is_ascii_digit();
        words.push(if letter.is_alphanumeric() { letter.to_ascii_uppercase() } else { '_' });
    }
    words
}

/// Whether a value cannot be a secret, even if its name suggests one: a switch, a reference to another variable, or nothing.
pub(super) fn is_no_secret(value: &str) -> bool {
    let value = value.trim().trim_matches(['"', '\'']);
    let is_name = |name: &str, small: bool| {
        !name.is_empty()
            && name.bytes().all(|byte| {
                byte.is_ascii_uppercase()
                    || byte.is_ascii_digit()
                    || byte == b'_'
                    || (small && byte.is_ascii_lowercase())
            })
    };
    let inner = |open: &str, close: char| value.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    value.is_empty()
        || matches!(
            value.to_ascii_lowercase().as_str(),
            "true" | "false" | "yes" | "no" | "on" | "off" | "null"
        )
        || inner("${", '}').is_some_and(|name| is_name(name, true))
        || inner("$(", ')').is_some_and(|name| is_name(name, true))
        || value.trim_start_matches('$').len() < value.len() && is_name(value.trim_start_matches('$'), false)
}

/// Whether a name says that its value is the path of a file, and the value is a path: `PASSWORD_FILE=/run/secrets/x`.
pub(super) fn is_path(name: &str, value: &str) -> bool {
    let name = in_words(name);
    let last = name.rsplit('_').next().unwrap_or_default();
    let names_a_path = matches!(last, "FILE" | "PATH" | "DIR" | "DIRECTORY" | "PWD");
    names_a_path && (value.starts_with('/') || value.starts_with("./") || value.starts_with("../"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_how_surely_their_value_is_secret() {
        for name in [
            "DB_PASSWORD",
            "DB_PW",
            "PGPASS",
            "DBPASS",
            "--requirepass",
            "x.basicauth.users",
            "AccountKey",
            "api-key",
            "AWS_SECRET_ACCESS_KEY",
            "SLACK_WEBHOOK_URL",
            "Authorization",
            "clientSecret",
            "password",
        ] {
            assert_eq!(telling(name), Telling::Surely, "{name}");
        }
        for name in [
            "APP_KEY",
            "KEY_STRIPE",
            "KEYS_BACKUP",
            "KEY_1",
            "REGISTRY_AUTH",
            "SENTRY_DSN",
            "AUTH_SALT",
            "homepage.widget.key",
        ] {
            assert_eq!(telling(name), Telling::Weakly, "{name}");
        }
        for name in [
            "AUTHOR",
            "AUTHENTIK_HOST",
            "PUBLIC_KEY",
            "AUTH_METHOD",
            "TOKEN_TTL",
            "KEYBOARD",
            "KEY_PREFIX",
            "key_buffer_size",
            "COMPASS",
            "MONKEY",
            "PASSENGERS",
            "TOKEN_URL",
            "traefik.http.routers.web.rule",
            "PASSWORD_MIN_LENGTH",
            "BYPASS",
        ] {
            assert_eq!(telling(name), Telling::No, "{name}");
        }
    }

    #[test]
    fn switches_references_and_paths_are_no_secrets() {
        for value in ["", "true", "off", "${DB_PASSWORD}", "$DB_PASSWORD", "$(DB_PASSWORD)", "$$DB_PASSWORD"]
        {
            assert!(is_no_secret(value), "{value}");
        }
        for value in ["hunter2", "$ecret", "trueish", "$(rm -rf)", "1234"] {
            assert!(!is_no_secret(value), "{value}");
        }
        assert!(is_path("MYSQL_PASSWORD_FILE", "/run/secrets/db") && is_path("PWD", "/srv"));
        assert!(!is_path("MYSQL_PASSWORD_FILE", "hunter2") && !is_path("DB_PASSWORD", "/hunter2"));
    }
}
