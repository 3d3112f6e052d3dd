//! kubectl's dialect of JSONPath: `{.items[*].metadata.name}`, `{range .items[*]}…{end}`, filters, quoted text.
//!
//! A template is parsed first, with an error at the column of a mistake, and then evaluated without errors. A missing
//! field or index gives no value, as with kubectl. There are no scripts, functions, `&&` or `=~`.

use serde_json::Value;

mod parse;
mod syntax;

pub(super) use syntax::{JsonPath, SyntaxError};

use parse::Parser;
use syntax::{Comparison, Filter, Operand, Part, Start, Step};

/// Text with paths, whose values take their place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Template(Vec<Part>);

/// The largest number of values, because every `..` may multiply them.
const MOST: usize = 1_000_000;

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, SyntaxError> {
        Parser::new(text).template().map(Self)
    }

    /// The text for a value.
    pub(super) fn render(&self, root: &Value) -> String {
        let mut out = String::new();
        write(&self.0, root, root, &mut out);
        out
    }
}

impl JsonPath {
    /// Parses a path of a column: `.metadata.name`, `metadata.name` or `{.metadata.name}`.
    pub(super) fn parse(text: &str) -> Result<Self, SyntaxError> {
        Parser::new(text).lone_path()
    }

    pub(super) fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        self.find_from(root, root)
    }

    fn find_from<'a>(&self, root: &'a Value, here: &'a Value) -> Vec<&'a Value> {
        let start = match self.from {
            Start::Root => root,
            Start::Here => here,
        };
        let mut found = vec![start];
        for step in &self.steps {
            let mut next = Vec::new();
            for value in found {
                step.take(root, value, &mut next);
            }
            next.truncate(MOST);
            found = next;
        }
        found
    }
}

/// A value as people see it: text without quotes, lists and maps as JSON.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn write(parts: &[Part], root: &Value, here: &Value, out: &mut String) {
    for part in parts {
        match part {
            Part::Text(it) => out.push_str(it),
            Part::Path(path) => {
                let found: Vec<String> = path.find_from(root, here).into_iter().map(text).collect();
                out.push_str(&found.join(" "));
            }
            Part::Range(path, body) => {
                for item in path.find_from(root, here) {
                    write(body, root, item, out);
                }
            }
        }
    }
}

impl Step {
    fn take<'a>(&self, root: &'a Value, value: &'a Value, out: &mut Vec<&'a Value>) {
        match self {
            Self::Field(name) => out.extend(value.get(name)),
            Self::All => out.extend(children(value)),
            Self::Below => below(value, out),
            Self::Index(index) => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                out.extend(place(*index, items.len()).and_then(|it| items.get(it)));
            }
            Self::Slice { from, to, by } => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let bound = |it: i64| {
                    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                    let it = if it < 0 { it.saturating_add(length) } else { it };
                    usize::try_from(it.clamp(0, length)).unwrap_or_default()
                };
                let (from, to) = (from.map_or(0, bound), to.map_or(items.len(), bound));
                let by = usize::try_from(*by).unwrap_or(1).max(1);
                out.extend(items.get(from..to.max(from)).unwrap_or_default().iter().step_by(by));
            }
            Self::Union(steps) => {
                for step in steps {
                    step.take(root, value, out);
                }
            }
            Self::Filter(filter) => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                out.extend(items.iter().filter(|it| filter.admits(root, it)));
            }
        }
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(entries) => entries.values().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

fn below<'a>(value: &'a Value, out: &mut Vec<&'a Value>) {
    if out.len() >= MOST {
        return;
    }
    out.push(value);
    for child in children(value) {
        below(child, out);
    }
}

/// Negative numbers count from the end.
fn place(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { index.checked_add(length)? } else { index }).ok()
}

impl Filter {
    fn admits(&self, root: &Value, item: &Value) -> bool {
        match self {
            Self::Has(path) => !path.find_from(root, item).is_empty(),
            Self::Compare(left, comparison, right) => {
                let one = |it: &Operand| match it {
                    Operand::Literal(value) => Some(value.clone()),
                    Operand::Path(path) => match path.find_from(root, item).as_slice() {
                        [value] => Some((*value).clone()),
                        _ => None,
                    },
                };
                match (one(left), one(right)) {
                    (Some(left), Some(right)) => comparison.holds(&left, &right),
                    (Some(_), None) | (None, Some(_) | None) => false,
                }
            }
        }
    }
}

impl Comparison {
    /// Numbers as numbers, and everything else as text.
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left.as_f64(), right.as_f64()) {
            (Some(left), Some(right)) => left.partial_cmp(&right),
            (Some(_), None) | (None, Some(_) | None) => Some(text(left).cmp(&text(right))),
        };
        let Some(order) = order else { return false };
        match self {
            Self::Equal => order.is_eq(),
            Self::Unequal => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pods() -> Value {
        json!({ "kind": "List", "items": [
            { "metadata": { "name": "web-1", "labels": { "app.kubernetes.io/name": "web", "n": "1" } },
              "spec": { "containers": [{ "name": "app", "image": "web:1" }, { "name": "side", "image": "side:2" }] },
              "status": { "phase": "Running", "restarts": 3, "ready": true } },
            { "metadata": { "name": "db-0", "labels": {} },
              "spec": { "containers": [{ "name": "db", "image": "db:16" }] },
              "status": { "phase": "Pending", "restarts": 12, "ready": false } },
        ]})
    }

    fn render(template: &str) -> String {
        Template::parse(template).unwrap_or_else(|error| panic!("{error}")).render(&pods())
    }

    #[test]
    fn templates_are_evaluated_like_kubectl() {
        let cases = [
            ("{.items[*].metadata.name}", "web-1 db-0"),
            ("{.items[0].metadata.name}", "web-1"),
            ("{.items[-1].metadata.name}", "db-0"),
            ("{.items[-1:].metadata.name}", "db-0"),
            ("{.items[0:1].metadata.name}", "web-1"),
            ("{.items[::2].metadata.name}", "web-1"),
            ("{.items[0,1].status.phase}", "Running Pending"),
            ("{.items[9].metadata.name}", ""),
            ("{$.kind} {@.kind} {.kind} {['kind']}", "List List List List"),
            ("{.items[*]['metadata.name','kind']}", ""),
            ("{.items[0].metadata['name','labels']}", r#"web-1 {"app.kubernetes.io/name":"web","n":"1"}"#),
            (r"{.items[0].metadata.labels.app\.kubernetes\.io/name}", "web"),
            ("{.items[0].metadata.labels['app.kubernetes.io/name']}", "web"),
            (
                r#"{range .items[*]}{.metadata.name}{"\t"}{.status.phase}{"\n"}{end}"#,
                "web-1\tRunning\ndb-0\tPending\n",
            ),
            (
                "{range .items[*]}{$.kind}:{range .spec.containers[*]}{.name},{end};{end}",
                "List:app,side,;List:db,;",
            ),
            (r#"{.items[?(@.status.phase=="Running")].metadata.name}"#, "web-1"),
            ("{.items[?(@.status.phase != 'Running')].metadata.name}", "db-0"),
            ("{.items[?(@.status.restarts>3)].metadata.name}", "db-0"),
            ("{.items[?(@.status.restarts<=3)].metadata.name}", "web-1"),
            ("{.items[?(@.status.ready==true)].metadata.name}", "web-1"),
            ("{.items[?(@.metadata.labels.n)].metadata.name}", "web-1"),
            (r#"{.items[0].spec.containers[?(@.name=="side")].image}"#, "side:2"),
            (r#"{.items[?(@.spec.containers[0].image=="db:16")].metadata.name}"#, "db-0"),
            ("{..image}", "web:1 side:2 db:16"),
            ("{.items..name}", "web-1 app side db-0 db"),
            ("{.items[1].status.*}", "Pending false 12"),
            ("{.items[1].metadata}", r#"{"labels":{},"name":"db-0"}"#),
            ("{.nothing.at.all}", ""),
            ("plain text, no braces", "plain text, no braces"),
            (r#"{"a" }{'it\'s'}{"\\"}"#, r"ait's\"),
            ("{ .kind }", "List"),
            ("", ""),
        ];
        for (template, expected) in cases {
            assert_eq!(render(template), expected, "{template}");
        }
    }

    #[test]
    fn syntax_errors_name_their_column() {
        let cases = [
            ("{.items", 8, "`}` is missing"),
            ("{.items[}", 9, "a number, `*`, a quoted name, `:` or `?(` must follow `[`"),
            ("{.items[0}", 10, "`]` is missing"),
            ("{.items[?(@.a=='x']}", 19, "`)` is missing"),
            ("{.items[?(@.a==)]}", 16, "a path, a quoted text, a number, true or false must stand here"),
            ("{.items[?(@.a=~'x')]}", 14, "compare with ==, !=, <, <=, > or >="),
            ("{.items[?(@.a && @.b)]}", 15, "compare with ==, !=, <, <=, > or >="),
            ("{'abc}", 2, "the quote is not closed"),
            ("{range .items[*]}{.x}", 22, "`{end}` is missing"),
            ("{end}", 2, "there is no `range` to end"),
            ("{range}", 7, "a path must follow `range`"),
            ("{.a..}", 6, "a name must follow `..`"),
            ("{items}", 2, "a path begins with `.`, `[`, `$` or `@`"),
            ("{.items[1:2:0]}", 13, "a step is 1 or more"),
            ("{.items[99999999999999999999]}", 9, "the number is too large"),
            ("ä{.a b}", 6, "a path begins with `.`, `[`, `$` or `@`"),
            ("}", 1, "`}` without `{`"),
        ];
        for (template, column, message) in cases {
            let wrong = Template::parse(template).expect_err(template);
            assert_eq!((wrong.column, wrong.message.as_str()), (column, message), "{template}");
        }
        let deep = "{range .a}".repeat(1000);
        assert_eq!(Template::parse(&deep).unwrap_err().message, "this is nested too deeply");
        let deep = format!("{{.a{}", "[?(@.a".repeat(1000));
        assert_eq!(Template::parse(&deep).unwrap_err().message, "this is nested too deeply");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in r#"(\{range |\{end\}|[{}\[\].@$*?()'"a-c0-9:,=<>!\\ é-]){0,30}"#) {
            if let Ok(template) = Template::parse(&text) {
                template.render(&pods());
            }
            if let Ok(path) = JsonPath::parse(&text) {
                path.find(&pods());
            }
        }
    }

    #[test]
    fn column_accepts_path_with_or_without_braces() {
        for path in [".kind", "kind", "{.kind}", "$.kind"] {
            assert_eq!(JsonPath::parse(path).unwrap().find(&pods()), [&json!("List")], "{path}");
        }
        assert_eq!(JsonPath::parse(".items[*].metadata.name").unwrap().find(&pods()).len(), 2);
        assert_eq!(JsonPath::parse(".a b").unwrap_err().column, 3);
        assert_eq!(JsonPath::parse("").unwrap_err().column, 1);
    }
}
