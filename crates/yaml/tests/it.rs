//! The parser: places, aliases, merge keys, error messages, and hostile input.

#![allow(clippy::unwrap_used, clippy::pedantic)]

use driftless_model::Finding;
use driftless_yaml::{Kind, Limits, Node, parse, with_excerpt};

fn read(text: &str) -> Vec<Node> {
    parse("a.yaml", text.as_bytes(), &Limits::default()).unwrap()
}

fn one(text: &str) -> Node {
    let mut documents = read(text);
    assert_eq!(documents.len(), 1);
    documents.remove(0)
}

fn parse_error(text: impl AsRef<[u8]>) -> Finding {
    parse("a.yaml", text.as_ref(), &Limits::default()).unwrap_err()
}

/// `line:column` of a value by its keys.
fn place(node: &Node, keys: &[&str]) -> String {
    let node = keys.iter().fold(node, |node, key| node.get(key).unwrap());
    format!("{}:{}", node.place.line, node.place.column)
}

#[test]
fn block_scalar_has_only_the_line_breaks_of_the_file() {
    let cases = [
        ("|", "x", "x"),
        ("|", "x\n", "x\n"),
        ("|", "x\n\n", "x\n"),
        ("|", "x\n  \n      ", "x\n"),
        ("|", "x\n          ", "x\n  "),
        ("|", "x\n# comment", "x\n"),
        ("|", "x\n  # comment", "x\n"),
        ("|", "x\r\n        y", "x\ny"),
        ("|", "", ""),
        ("|-", "x", "x"),
        ("|-", "x\n          ", "x\n  "),
        ("|+", "x", "x"),
        ("|+", "x\n", "x\n"),
        ("|+", "x\n\n", "x\n\n"),
        ("|+", "x\n  \n      ", "x\n\n"),
        ("|+", "", ""),
        ("|+", "\n     ", "\n"),
        (">", "x\n        y", "x y"),
        (">+", "x\n          ", "x\n  "),
        ("|1+", "x\n", "   x\n"),
        ("|1+", "", "   "),
    ];
    for (style, tail, value) in cases {
        let node = one(&format!("a:\n    b: {style}\n        {tail}"));
        let found = node.get("a").unwrap().get("b").unwrap().as_scalar().unwrap().to_owned();
        assert_eq!(found, value, "{style} {tail:?}");
    }
}

#[test]
fn values_and_keys_know_line_and_column() {
    let node = one(
        "# a comment\nservices:\n  web:\n    image: nginx\n    ports: [80, 443]\n    empty:\nx: !reset null\n",
    );
    assert_eq!(node.place.location().to_string(), "a.yaml:2:1");
    assert_eq!(place(&node, &["services", "web"]), "4:5");
    assert_eq!(place(&node, &["services", "web", "image"]), "4:12");
    let web = node.get("services").unwrap().get("web").unwrap();
    assert_eq!(web.entries()[1].key_place.column, 5);
    assert_eq!(web.get("ports").unwrap().items()[1].place.column, 17);
    assert!(web.get("empty").unwrap().is_null());
    assert_eq!(node.get("x").unwrap().tag.as_deref(), Some("!reset"));
    assert_eq!(place(&node, &["x"]), "7:4");
}

#[test]
fn empty_documents_are_left_out() {
    let documents = read("---\n---\na: 1\n---\n# nothing\n---\nnull\n---\n- b\n...\n");
    let kinds: Vec<_> = documents.iter().map(Node::kind_name).collect();
    assert_eq!(kinds, ["map", "list"]);
    assert!(read("").is_empty());
    assert_eq!(one("\u{feff}a: 1").get("a").unwrap().as_i64(), Some(1));
    assert_eq!(one("a: 1\r\nb: 2\r\n").get("b").unwrap().as_i64(), Some(2));
}

#[test]
fn scalars_keep_their_text_and_resolve_to_types() {
    let node = one("a: 0123\nb: '80'\nc: yes\nd: true\ne: 1.5\nf: |\n  two\n  lines\ng: !!str 010\n");
    let get = |key| node.get(key).unwrap();
    assert_eq!((get("a").as_i64(), get("a").as_scalar()), (Some(83), Some("0123")));
    assert_eq!((get("b").as_i64(), get("b").kind_name()), (None, "string"));
    assert_eq!((get("c").as_bool(), get("d").as_bool()), (None, Some(true)));
    assert_eq!((get("e").as_f64(), get("a").as_f64()), (Some(1.5), Some(83.0)));
    assert_eq!(get("f").as_scalar(), Some("two\nlines\n"));
    assert_eq!((get("g").as_i64(), get("g").tag.as_deref()), (None, Some("!!str")));
}

#[test]
fn aliases_keep_the_place_of_their_definition() {
    let node = one("a: &it\n  x: 1\nb: *it\nc: [*it]\n");
    assert_eq!(place(&node, &["b", "x"]), "2:6");
    assert_eq!(node.get("c").unwrap().items()[0].get("x").unwrap().as_i64(), Some(1));
    let again = one("a: &it 1\nb: &it 2\nc: *it\n");
    assert_eq!(again.get("c").unwrap().as_i64(), Some(2));
    let key = one("a: &it name\n*it : value\n");
    assert_eq!(key.get("name").unwrap().as_scalar(), Some("value"));
}

#[test]
fn own_keys_win_over_merged_maps_and_first_map_wins() {
    let node = one("a: &a {x: 1, y: 1}\nb: &b {x: 2, z: 2}\nc:\n  <<: [*a, *b]\n  y: 3\nd: {y: 4, <<: *a}\n");
    let values = |key| -> Vec<_> {
        let mut all: Vec<_> = node
            .get(key)
            .unwrap()
            .entries()
            .iter()
            .map(|it| (it.key.clone(), it.value.as_i64().unwrap()))
            .collect();
        all.sort();
        all
    };
    assert_eq!(values("c"), [("x".into(), 1), ("y".into(), 3), ("z".into(), 2)]);
    assert_eq!(values("d"), [("x".into(), 1), ("y".into(), 4)]);
    assert_eq!(place(&node, &["c", "z"]), "2:17");
    let nested = one("a: &a {x: 1}\nb: &b\n  <<: *a\nc:\n  <<: *b\n");
    assert_eq!(nested.get("c").unwrap().get("x").unwrap().as_i64(), Some(1));
    let quoted = one("a: {'<<': text}\n");
    assert_eq!(quoted.get("a").unwrap().get("<<").unwrap().as_scalar(), Some("text"));
}

#[test]
fn syntax_errors_have_a_place_and_plain_words() {
    let cases = [
        ("a: 1\nb: 2\na: 3\n", "a.yaml:3:1: error: `a` is already defined at line 1, column 1"),
        ("a: {x: 1, x: 2}\n", "a.yaml:1:11: error: `x` is already defined at line 1, column 5"),
        (
            "a: &a {x: 1}\nb:\n  <<: *a\n  <<: *a\n",
            "a.yaml:4:3: error: `<<` is already defined at line 3, column 3",
        ),
        ("a: &a 1\nb:\n  <<: *a\n", "a.yaml:1:7: error: `<<` merges maps only"),
        ("b:\n  <<: [{x: 1}, 2]\n", "a.yaml:2:16: error: `<<` merges maps only"),
        ("a:\n\tb: 1\n", "a.yaml:2:2: error: a tab is used as indentation"),
        ("a: *nobody\n", "a.yaml:1:4: error: the alias has no anchor"),
        ("a: &a [*a]\n", "a.yaml:1:8: error: the alias refers to the value that contains it"),
        ("a: {{ .Values.x }}\n", "a.yaml:1:5: error: a map or list cannot be a key"),
        ("? [a]\n: 1\n", "a.yaml:1:3: error: a map or list cannot be a key"),
        (": 1\n", "a.yaml:1:1: error: a key is missing before the `:`"),
        ("a: b: c\n", "a.yaml:1:5: error: a `:` is not allowed here"),
        ("a: \"b\n", "a.yaml:2:1: error: the quoted text that starts above has no end"),
        ("a: @b\n", "a.yaml:1:4: error: no value can begin with `@`"),
        ("a: [1, 2\n", "a.yaml:1:4: error: the file is not valid YAML"),
        ("a: 1\n  b: 2\n", "a.yaml:2:4: error: a `:` is not allowed here"),
        ("a: \u{7}\n", "a.yaml:1:4: error: the file contains a control character"),
    ];
    let wrong: Vec<_> = (cases.iter())
        .map(|(text, expected)| (text, parse_error(text).to_string(), expected))
        .filter(|(_, found, expected)| !found.starts_with(*expected))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let error = parse_error(b"a: 1\nb: \xff\xfe\n");
    assert_eq!(error.location.to_string(), "a.yaml:2:4");
    assert_eq!(error.message, "the file is not UTF-8 text");
}

#[test]
fn syntax_errors_quote_their_line_if_the_caller_may() {
    let text = "x: 1\na: b: c\n";
    let error = parse_error(text);
    assert_eq!(error.excerpt, None);
    assert_eq!(with_excerpt(error, text.as_bytes()).excerpt.as_deref(), Some("a: b: c"));
}

#[test]
fn hostile_files_are_refused_at_little_cost() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let all = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{all}]\n"));
    }
    let long_text = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), vec!["*a"; 9_000].join(","));
    let merge_bomb = {
        let mut text = "a0: &a0 {k: v}\n".to_owned();
        for level in 1..40 {
            text.push_str(&format!(
                "a{level}: &a{level} {{<<: [*a{0}, *a{0}], k{level}: *a{0}}}\n",
                level - 1
            ));
        }
        text
    };
    let cases = [
        ("an alias bomb", bomb),
        ("a long text many times", long_text),
        ("a merge bomb", merge_bomb),
        ("deep lists", "[".repeat(10_000)),
        ("deep closed lists", format!("{}{}", "[".repeat(10_000), "]".repeat(10_000))),
        ("deep maps", format!("a: {}", "{a: ".repeat(10_000))),
        ("deep block lists", "- ".repeat(10_000)),
        ("deep block maps", (0..1_000).map(|it| format!("{}a:\n", " ".repeat(it))).collect()),
        ("deep explicit keys", "? ".repeat(10_000)),
        ("nested anchors", (0..10_000).map(|it| format!("&a{it} [")).collect()),
        ("many values", format!("[{}]", "1,".repeat(400_000))),
        ("a large file", "#".repeat(1024 * 1024 + 1)),
    ];
    for (name, text) in cases {
        let finding = parse_error(&text);
        assert_eq!(finding.location.file, "a.yaml", "{name}");
        assert!(finding.location.line > 0 || name == "a large file", "{name}: {finding}");
        assert!(finding.to_string().len() < 400, "{name}: {finding}");
    }
}

#[test]
fn files_within_the_limits_are_parsed() {
    let deep = format!("{}1{}", "[".repeat(64), "]".repeat(64));
    assert!(matches!(one(&deep).kind, Kind::Sequence(_)));
    let many = format!("[{}]", vec!["1"; 99_999].join(","));
    assert_eq!(one(&many).items().len(), 99_999);
    let through_alias = format!("a: &a {}1{}\nb: [*a]\n", "[".repeat(63), "]".repeat(63));
    assert!(parse_error(through_alias).message.contains("nested more than 64 deep"));
}

proptest::proptest! {
    /// Any mixture of YAML tokens is a tree or an error with a place.
    #[test]
    fn no_mixture_of_tokens_panics(tokens in proptest::collection::vec(
        proptest::sample::select(vec![
            "a", "b:", "- ", "\n", "\n  ", "\n    ", ": ", "? ", "[", "]", "{", "}", ",", "&a ", "*a ", "<<: ", "!t ", "!!int ",
            "|\n", ">-\n", "\"", "'", "#", "---\n", "...\n", "%TAG ! b\n", "\t", "~", "0x", "\u{feff}", "é", "\r\n", "\\",
        ]),
        0..60,
    )) {
        let text = tokens.concat();
        if let Err(error) = parse("a.yaml", text.as_bytes(), &Limits::default()) {
            assert!(error.location.line > 0 && error.location.column > 0, "{text:?}: {error}");
        }
    }
}
