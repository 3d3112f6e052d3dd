//! Splits a command in one string into words, as Docker Compose does. It is no shell: nothing is expanded, and an
//! unquoted `;`, `&`, `|`, `<` or `>` ends the command.

/// The words, and the shell operator that ended the command, if any.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) words: Vec<String>,
    pub(crate) cut_at: Option<char>,
}

/// Splits a command. `None`: a quote or an escape is left open, or a parenthesis is not quoted.
pub(crate) fn split(line: &str) -> Option<Words> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut cut_at = None;
    let mut quote: Option<char> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some('\''), '\\') => word.get_or_insert_default().push('\\'),
            (_, '\\') => word.get_or_insert_default().push(letters.next()?),
            // Command substitutions are left to a shell that the command starts, so they stay as they are.
            (Some(')'), ')') | (Some('`'), '`') => {
                word.get_or_insert_default().push(letter);
                quote = None;
            }
            (Some(open), letter) if open == letter => {
                word.get_or_insert_default();
                quote = None;
            }
            (None, ' ' | '\t' | '\r' | '\n') => words.extend(word.take()),
            (None, '"' | '\'') => quote = Some(letter),
            (None, '`') => {
                word.get_or_insert_default().push('`');
                quote = Some('`');
            }
            (None, '(') if word.as_deref().is_some_and(|it| it.ends_with('$')) => {
                word.get_or_insert_default().push('(');
                quote = Some(')');
            }
            (None, '(' | ')') => return None,
            (None, ';' | '&' | '|' | '<' | '>') => {
                // `2>` names a stream, so the number is no argument.
                let is_stream =
                    |word: &String| !word.is_empty() && word.bytes().all(|digit| digit.is_ascii_digit());
                word = word.filter(|word| letter != '>' || !is_stream(word));
                cut_at = Some(letter);
                break;
            }
            (Some(_) | None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(Words { words, cut_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_split_at_unquoted_spaces() {
        let words = |line: &str| split(line).map(|it| it.words.join("|"));
        let cases = [
            ("bundle  exec thin -p 3000", Some("bundle|exec|thin|-p|3000")),
            (r#"sh -c "echo 'a b' \"c\"""#, Some("sh|-c|echo 'a b' \"c\"")),
            (r"a\ b 'c\d' ''", Some(r"a b|c\d|")),
            ("a\nb", Some("a|b")),
            ("it's", None),
            ("a \\", None),
            ("f(x)", None),
            ("echo $(a b)c", Some("echo|$(a b)c")),
            ("echo `a 'b | c`d e", Some("echo|`a 'b | c`d|e")),
            ("echo `a b", None),
            ("celery worker 2>&1", Some("celery|worker")),
            ("/start.sh 2>/dev/null", Some("/start.sh")),
            ("serve --port=80 | tee /log", Some("serve|--port=80")),
            ("serve a2>&1", Some("serve|a2")),
            ("serve 80 > /log", Some("serve|80")),
            ("sleep 5;", Some("sleep|5")),
            ("", Some("")),
        ];
        for (line, wanted) in cases {
            assert_eq!(words(line).as_deref(), wanted, "{line}");
        }
        assert_eq!(split("a && b"), Some(Words { words: vec!["a".to_owned()], cut_at: Some('&') }));
    }
}
