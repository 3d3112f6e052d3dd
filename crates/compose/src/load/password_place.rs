//! Places whose value is a password: a variable of a container with such a name, an option of a command, the part of an
//! address after the user.

use crate::{load::missing_values::is_password as is_password_name, spec::path::Path};

/// Keys of a service with the arguments of a program.
const ARGUMENTS: &[&str] = &["command", "entrypoint", "test"];

/// Options of Redis that take a password.
const OPTIONS: &[&str] = &["REQUIREPASS", "MASTERAUTH"];

/// Whether an empty value in a text is a password. `at` is its place in the text, and `before` the value before the text in
/// its list.
pub(crate) fn is_password(path: &Path<'_>, before: Option<&str>, text: &str, at: usize) -> bool {
    let Some((left, right)) = text.split_at_checked(at) else { return false };
    if is_address_password(left, right) {
        return true;
    }
    match path {
        Path::Key(Path::Key(_, "environment"), name) => text.is_empty() && is_password_name(name),
        Path::Index(Path::Key(_, "environment"), _) => {
            right.is_empty() && left.strip_suffix('=').is_some_and(is_password_name)
        }
        Path::Index(Path::Key(_, key), _) if ARGUMENTS.contains(key) && text.is_empty() => {
            before.is_some_and(is_password_option)
        }
        Path::Key(_, key) | Path::Index(Path::Key(_, key), _) if ARGUMENTS.contains(key) => {
            is_argument(left, right)
        }
        Path::Root | Path::Key(..) | Path::Index(..) => false,
    }
}

/// Whether an empty value at a place of a text is the password in an address.
pub(crate) fn is_address_password_at(text: &str, at: usize) -> bool {
    text.split_at_checked(at).is_some_and(|(left, right)| is_address_password(left, right))
}

/// `scheme://user:` before the value and `@` after it.
fn is_address_password(left: &str, right: &str) -> bool {
    let user = left.strip_suffix(':').and_then(|left| left.rsplit_once("://"));
    user.is_some_and(|(_, user)| !user.contains(['/', '@', ':']) && !user.contains(char::is_whitespace))
        && right.starts_with('@')
}

/// `--password=` or `--password ` before the value, and nothing of the same word after it.
fn is_argument(left: &str, right: &str) -> bool {
    let is_quote = |letter| matches!(letter, '"' | '\'');
    let is_whole =
        right.is_empty() || right.starts_with(|letter: char| letter.is_whitespace() || is_quote(letter));
    let left = left.trim_end_matches(is_quote);
    let option = match left.strip_suffix('=') {
        Some(option) => Some(option),
        None => Some(left.trim_end()).filter(|option| option.len() < left.len()),
    };
    let word = option.and_then(|option| option.split_whitespace().next_back());
    is_whole && word.is_some_and(|word| is_password_option(word.trim_start_matches(is_quote)))
}

fn is_password_option(word: &str) -> bool {
    let name = word.trim_start_matches('-');
    let name = name.replace('-', "_").to_ascii_uppercase();
    word.starts_with('-') && (is_password_name(&name) || OPTIONS.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the value in the place of `_` is a password.
    fn check(path: &Path<'_>, before: Option<&str>, text: &str) -> bool {
        let at = text.find('_').unwrap();
        is_password(path, before, &text.replace('_', ""), at)
    }

    #[test]
    fn places_of_passwords_are_recognised() {
        let service = Path::Root.key("services");
        let service = service.key("db");
        let (environment, command) = (service.key("environment"), service.key("command"));
        let (item, argument) = (environment.index(0), command.index(1));
        assert!(check(&environment.key("POSTGRES_PASSWORD"), None, "_"));
        assert!(check(&item, None, "password=_"));
        assert!(check(&environment.key("URL"), None, "postgres://u:_@h/d"));
        assert!(check(&argument, Some("--requirepass"), "_"));
        for text in ["--password=_", "sh -c 'app --db-password _'", "app --db-password=\"_\" -v"] {
            assert!(check(&argument, None, text) && check(&command, None, text), "{text}");
        }
        assert!(!check(&environment.key("POSTGRES_USER"), None, "_"));
        assert!(!check(&environment.key("API_TOKEN"), None, "_"));
        assert!(!check(&environment.key("DB_PASSWORD"), None, "a_"));
        assert!(!check(&item, None, "A=_"));
        assert!(!check(&argument, Some("--user"), "_"));
        assert!(!check(&argument, Some("requirepass"), "_"));
        for text in ["--user=_", "app _", "--password=_x", "postgres://u:p@_/d", "redis://_:6379"] {
            assert!(!check(&argument, None, text), "{text}");
        }
        assert!(!check(&service.key("image"), None, "_"));
    }
}
