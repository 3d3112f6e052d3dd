//! One report in all its forms: each says the same, keeps to the limits of its readers, and to its schema.

use std::{collections::BTreeMap, io::Write, process::Stdio};

use driftless_model::{AppName, CommitId, CommitInfo, Timestamp};
use driftless_report as report;
use driftless_report::{
    App, COMMENT_LIMIT, Ignore, Item, Kind, ObjectDiff, Report, STEP_SUMMARY_LIMIT, Selector, Type,
};
use serde_json::Value;

fn item(kind: &str, name: &str, change: Type, path: &str) -> Item {
    Item {
        kind: kind.to_owned(),
        name: name.to_owned(),
        change,
        path: path.to_owned(),
        want: "8080".to_owned(),
        got: "9".to_owned(),
        masked: false,
        file: "sites/shop/compose.yaml".to_owned(),
        line: 3,
        action: None,
        first_seen: None,
        ignored: None,
        labels: BTreeMap::from([("tier".to_owned(), "front".to_owned())]),
    }
}

fn app(name: &str) -> App {
    report::application(&AppName::from(name), &format!("sites/{name}"))
}

/// All that a report can contain, with characters that could break a format.
fn sample() -> Report {
    let mut shop = app("shop");
    shop.suspended = true;
    shop.items = vec![
        Item {
            first_seen: Some(Timestamp(1_767_225_600_000)),
            action: Some(report::Action::Heal),
            want: "running".to_owned(),
            got: "exited (1)".to_owned(),
            ..item("container", "shop-web-1", Type::Stopped, "state")
        },
        Item {
            want: "••••3f9a".to_owned(),
            got: "••••77aa".to_owned(),
            masked: true,
            ..item("container", "shop-web-1", Type::Modified, "env.DB_PASSWORD")
        },
        Item {
            want: "https://a:••••77aa@b".to_owned(),
            ..item("container", "shop-web-1", Type::Modified, "env.URL")
        },
        Item {
            got: "a|b `c` <d> & \u{1b}[31m\u{fffe} ``` % \r\n ::error::x".to_owned(),
            ..item("container", "shop-web-1", Type::Modified, "env.ODD")
        },
        item("network", "shop_default", Type::Missing, ""),
        item("container", "shop-old-1", Type::Extra, ""),
    ];
    shop.diffs = vec![ObjectDiff {
        kind: "container".to_owned(),
        name: "shop-web-1".to_owned(),
        text: "--- live/shop/container/shop-web-1\n+++ git@0/shop/container/shop-web-1\n@@ -1 +1 @@\n-DB: ••••77aa ```\n+DB: ••••3f9a\n".to_owned(),
    }];
    let mut blog = app("blog");
    blog.error = Some("sites/blog/compose.yaml:4:7: error: services.web: unknown key `imag`\nsites/blog/compose.yaml:9:1: error: more".to_owned());
    let mut wiki = app("wiki");
    wiki.pinned = Some(CommitId::from_stored("b".repeat(40)));
    let mut report = Report::new(Kind::Drift);
    report.generated_at = Some(Timestamp(1_767_225_600_000));
    report.agent = Some("http://127.0.0.1:8484".to_owned());
    report.head = Some(CommitInfo {
        id: CommitId::from_stored("0".repeat(40)),
        author: "Ops".to_owned(),
        subject: "Fix | the <shop> @everyone".to_owned(),
        time: Timestamp(1),
    });
    report.errors = vec!["`sites/a` and `sites/b` have one name".to_owned()];
    report.unmanaged = vec!["pihole".to_owned()];
    report.apps = vec![shop, wiki, blog, app("quiet")];
    report::settle(&mut report);
    report
}

#[test]
fn text_names_every_application_and_difference() {
    insta::assert_snapshot!(report::text(&sample()));
}

#[test]
fn the_diff_holds_errors_too_so_that_none_is_taken_for_silence() {
    let text = report::diff(&sample());
    assert!(text.contains("# blog: error: ") && text.contains("# error: `sites/a`"), "{text}");
    assert!(text.contains("\n-DB: ••••#1 ```\n+DB: ••••#2\n"), "{text}");
}

#[test]
fn the_markdown_reads_well_and_nothing_in_it_breaks_out() {
    let text = report::markdown(&sample(), "default", COMMENT_LIMIT);
    insta::assert_snapshot!(text);
    // The fence is longer than what it holds, and a table row has one line and no further cell.
    assert!(text.contains("````diff"), "{text}");
    assert!(!text.contains("@everyone") && !text.contains("<shop>") && !text.contains('\u{1b}'), "{text}");
    // Forges decode entities before they look for mentions.
    assert!(text.contains("@&#8203;everyone") && !text.contains("&#64;"), "{text}");
}

#[test]
fn annotations_are_escaped_and_a_value_cannot_become_a_command() {
    let text = report::annotations(&sample());
    insta::assert_snapshot!(text);
    assert_eq!(text.lines().filter(|it| it.starts_with("::error")).count(), 3, "{text}");
    assert!(text.lines().all(|it| !it.starts_with("::error::x")), "{text}");
}

#[test]
fn of_many_annotations_nine_are_shown_and_the_rest_counted() {
    let mut report = Report::new(Kind::Drift);
    let mut shop = app("shop");
    shop.items =
        (0..25).map(|it| item("container", &format!("shop-{it:02}-1"), Type::Modified, "env.A")).collect();
    report.apps = vec![shop];
    report::settle(&mut report);
    let text = report::annotations(&report);
    let warnings: Vec<&str> = text.lines().filter(|it| it.starts_with("::warning")).collect();
    assert_eq!(warnings.len(), 10);
    assert_eq!(warnings[9], "::warning title=driftless::16 more: see the log or the report");
    assert!(text.contains("shop 25"), "{text}");
}

#[test]
fn headline_agrees_with_the_number_of_applications() {
    let mut report = Report::new(Kind::Drift);
    let mut blog = app("blog");
    blog.error = Some("sites/blog/compose.yaml:4:7: error: unknown key `imag`".to_owned());
    report.apps = vec![blog];
    report::settle(&mut report);
    assert_eq!(report::headline(&report), "0 of 1 application drifts; 1 error");
    report.apps.push(app("shop"));
    report::settle(&mut report);
    assert_eq!(report::headline(&report), "0 of 2 applications drift; 1 error");
}

/// Hundreds of applications with large diffs, among many that are quiet.
fn huge(loud: usize, quiet: usize) -> Report {
    let mut report = Report::new(Kind::Preview);
    for number in 0..loud {
        let mut one = app(&format!("loud-{number:05}"));
        one.items = vec![item("workload", "web", Type::Modified, "env.A")];
        let text = "+ä line of some length\n".repeat(20 + number % 300);
        one.diffs = vec![ObjectDiff { kind: "workload".to_owned(), name: "web".to_owned(), text }];
        report.apps.push(one);
    }
    report.apps.extend((0..quiet).map(|it| app(&format!("quiet-{it:05}"))));
    report::settle(&mut report);
    report
}

#[test]
fn comment_stays_within_its_limit_and_names_every_app() {
    let report = huge(300, 700);
    let text = report::markdown(&report, "default", COMMENT_LIMIT);
    assert!(text.len() <= COMMENT_LIMIT && text.len() > COMMENT_LIMIT / 2, "{}", text.len());
    for app in &report.apps {
        assert!(text.contains(&format!("`{}`", app.name)), "{}", app.name);
    }
    assert!(text.contains("are left out, for they are too long. The summary of the run or"), "{text}");
    // The longest went first: the shortest is here.
    assert!(text.contains("<b>loud-00000</b>") && !text.contains("<b>loud-00299</b>"), "{text}");
    assert!(text.contains("300 of 1000 applications change"), "{text}");
    assert_eq!(text.matches("<details>").count(), text.matches("</details>").count());
    // There is more room in a summary.
    let summary = report::markdown(&report, "default", STEP_SUMMARY_LIMIT);
    assert!(summary.len() <= STEP_SUMMARY_LIMIT && summary.len() > text.len(), "{}", summary.len());
}

#[test]
fn comment_with_many_errors_stays_within_its_limit() {
    let mut report = huge(30, 30);
    report.errors = vec![format!("driftless.yaml:7:3: error: {}", "unknown <key> ".repeat(20)); 1000];
    report.known_errors.clone_from(&report.errors);
    let text = report::markdown(&report, "default", COMMENT_LIMIT);
    assert!(text.len() <= COMMENT_LIMIT, "{}", text.len());
    assert!(text.contains("**Error**: driftless.yaml") && text.contains("errors are left out"), "{text}");
    assert!(text.contains("`loud-00029`") && text.contains("`quiet-00029`"), "{text}");
}

#[test]
fn more_applications_than_a_comment_can_name_are_counted() {
    for (loud, quiet) in [(3000, 5000), (20_000, 0), (0, 20_000)] {
        let text = report::markdown(&huge(loud, quiet), "default", COMMENT_LIMIT);
        assert!(text.len() <= COMMENT_LIMIT, "{}", text.len());
        let named = text.matches("`loud-").count() + text.matches("`quiet-").count();
        let rest = text.split(" and ").nth(1).unwrap().split(" more").next().unwrap();
        assert_eq!(named + rest.parse::<usize>().unwrap(), loud + quiet, "{}", &text[text.len() - 200..]);
    }
}

#[test]
fn hidden_values_are_numbered_alike_wherever_they_stand() {
    let report = sample();
    let find = |path: &str| report.apps.iter().flat_map(|it| &it.items).find(|it| it.path == path).unwrap();
    let password = find("env.DB_PASSWORD");
    assert_eq!((password.got.as_str(), password.want.as_str()), ("••••#1", "••••#2"));
    assert_eq!(find("env.URL").want, "https://a:••••#1@b");
    for text in
        [report::json(&report), report::sarif(&report), report::junit(&report), report::ndjson(&report)]
    {
        assert!(!text.contains("3f9a") && !text.contains("77aa"), "{text}");
    }
}

#[test]
fn json_matches_its_published_schema() {
    let schema = include_str!("../../docs/report.schema.json");
    let mut swarm = app("swarm");
    swarm.items =
        ["config", "secret", "service"].map(|kind| item(kind, "shop_web", Type::Missing, "")).to_vec();
    let swarm = Report { apps: vec![swarm], ..Report::new(Kind::Drift) };
    for report in [sample(), huge(3, 2), Report::new(Kind::Preview), swarm] {
        let json: Value = serde_json::from_str(&report::json(&report)).unwrap();
        assert_eq!(faults(schema, &json), [""; 0]);
        assert_eq!(serde_json::from_value::<Report>(json).unwrap(), report, "it can be read back");
    }
    // The validator can say no.
    let mut wrong: Value = serde_json::from_str(&report::json(&sample())).unwrap();
    wrong["summary"]["apps"] = Value::from(-1);
    wrong["apps"][0]["surprise"] = Value::from(1);
    wrong["apps"][1]["items"] = Value::Null;
    wrong.as_object_mut().unwrap().remove("kind");
    assert_eq!(faults(schema, &wrong).len(), 4, "{:?}", faults(schema, &wrong));
}

#[test]
fn ndjson_is_one_object_per_line_and_ends_with_the_counts() {
    let text = report::ndjson(&sample());
    let lines: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(lines.last().unwrap()["type"], "summary");
    assert_eq!(lines.iter().filter(|it| it["type"] == "app").count(), 4);
    assert_eq!(lines.iter().filter(|it| it["type"] == "error").count(), 2);

    let mut known = Report::new(Kind::Preview);
    known.known_errors = vec!["a mistake of the base".to_owned()];
    let app = report::application(&"shop".into(), "shop");
    let (known_error, note) = (Some("broken before".to_owned()), Some("a remark".to_owned()));
    known.apps = vec![App { known_error, note, ..app }];
    let text = report::ndjson(&known);
    let errors = text.lines().filter(|line| line.contains(r#""known":true"#)).count();
    assert_eq!((errors, text.contains(r#""note":"a remark""#)), (2, true), "{text}");
}

#[test]
fn sarif_is_valid_and_fingerprints_survive_moved_lines() {
    let schema = include_str!("report/sarif.schema.json");
    for report in [sample(), huge(3, 2), Report::new(Kind::Drift)] {
        let json: Value = serde_json::from_str(&report::sarif(&report)).unwrap();
        assert_eq!(faults(schema, &json), [""; 0]);
        let run = &json["runs"][0];
        let rules: Vec<&Value> =
            run["tool"]["driver"]["rules"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
        for result in run["results"].as_array().unwrap() {
            assert!(rules.contains(&&result["ruleId"]), "{result}");
            let uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].as_str().unwrap();
            assert!(!uri.starts_with('/') && !uri.contains(' '), "{uri}");
        }
    }
    let prints = |report: &Report| -> Vec<String> {
        let json: Value = serde_json::from_str(&report::sarif(report)).unwrap();
        let results = json["runs"][0]["results"].as_array().unwrap().clone();
        results
            .iter()
            .map(|it| it["partialFingerprints"]["driftKey/v1"].as_str().unwrap().to_owned())
            .collect()
    };
    let mut moved = sample();
    moved.apps.iter_mut().flat_map(|it| &mut it.items).for_each(|it| it.line += 7);
    assert_eq!(prints(&sample()), prints(&moved));
    let mut unique = prints(&sample());
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), prints(&sample()).len());
}

#[test]
fn sarif_rules_of_a_preview_are_notes_about_two_commits() {
    let json: Value = serde_json::from_str(&report::sarif(&huge(1, 0))).unwrap();
    let rules = json["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap().clone();
    for rule in rules.iter().filter(|rule| rule["id"] != "error") {
        let text = rule["shortDescription"]["text"].as_str().unwrap();
        assert!(text.contains("The head") || text.contains("the head"), "{rule}");
        assert_eq!(rule["defaultConfiguration"]["level"], "note", "{rule}");
    }
}

#[test]
fn junit_report_matches_its_schema() {
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/report/junit.xsd");
    for report in [sample(), huge(3, 2), Report::new(Kind::Drift)] {
        let text = report::junit(&report);
        let mut child = std::process::Command::new("xmllint")
            .args(["--noout", "--schema", schema, "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|it| panic!("xmllint cannot be run, scripts/test-tools.sh installs it: {it}"));
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
        let count = |mark: &str| text.matches(mark).count();
        let head = text.lines().nth(1).unwrap();
        assert!(head.contains(&format!("tests=\"{}\"", count("<testcase"))), "{head}");
        assert!(head.contains(&format!("failures=\"{}\"", count("<failure"))), "{head}");
        assert!(head.contains(&format!("errors=\"{}\"", count("<error"))), "{head}");
    }
}

#[test]
fn ignored_drift_is_reported_and_not_counted() {
    let mut by_manifest = sample();
    for item in by_manifest.apps.iter_mut().flat_map(|app| &mut app.items) {
        item.ignored = Some("ignoreDifferences: env".to_owned());
    }
    report::ignore(&mut by_manifest, &Ignore::parse("drift.ignore", "shop network/none\n").unwrap());
    let mut items = by_manifest.apps.iter().flat_map(|app| &app.items);
    assert!(items.all(|item| item.ignored.is_some()), "rules of a file take nothing away");

    let mut report = sample();
    let rules = "# noise\nshop container/shop-web-* env.*   # set by hand\n* network/*\n";
    report::ignore(&mut report, &Ignore::parse("drift.ignore", rules).unwrap());
    report::settle(&mut report);
    assert_eq!((report.summary.ignored, report.summary.missing, report.summary.modified), (4, 0, 1));
    assert!(report::text(&report).contains("[ignored by drift.ignore:3]"));
    let sarif: Value = serde_json::from_str(&report::sarif(&report)).unwrap();
    let suppressed = |it: &&Value| it["suppressions"][0]["kind"] == "external";
    assert_eq!(sarif["runs"][0]["results"].as_array().unwrap().iter().filter(suppressed).count(), 4);
    assert!(report::junit(&report).contains("<skipped/>"));
    assert!(!report.has_drift(&[Type::Missing]) && report.has_drift(&[Type::Stopped]));
    for (wrong, place) in [("shop", "f:1"), ("a b/c\n\na b c d", "f:3"), ("shop web", "f:1")] {
        let error = Ignore::parse("f", wrong).unwrap_err().to_string();
        assert!(error.starts_with(place), "{error}");
    }
}

#[test]
fn labels_select_objects() {
    for (selector, kept) in
        [("tier=front", 6), ("tier!=front", 0), ("tier", 6), ("!tier", 0), ("tier==front,!x", 6)]
    {
        let mut report = sample();
        report::keep_objects(&mut report, &Selector::parse(selector).unwrap());
        report::settle(&mut report);
        let items: usize = report.apps.iter().map(|it| it.items.len()).sum();
        assert_eq!(items, kept, "{selector}");
        assert_eq!(report.apps.len(), 4);
        assert!(report.has_errors(), "what is not known is not selected away");
    }
    for wrong in ["", "=a", "a,,b", "a b", "!"] {
        assert!(Selector::parse(wrong).is_err(), "{wrong}");
    }
}

/// The parts of a value that violate a schema. Supports the keywords that our schemas use.
fn faults(schema: &str, value: &Value) -> Vec<String> {
    let schema: Value = serde_json::from_str(schema).unwrap();
    let mut out = Vec::new();
    check(&schema, &schema, value, "$", &mut out);
    out
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
    for (word, demand) in schema.as_object().unwrap() {
        match word.as_str() {
            "$ref" => {
                let target = root.pointer(demand.as_str().unwrap().trim_start_matches('#')).unwrap();
                check(root, target, value, at, out);
            }
            "type" => {
                let is_it = match demand.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_i64() || value.is_u64(),
                    other => panic!("{other}"),
                };
                if !is_it {
                    out.push(format!("{at} is no {demand}"));
                }
            }
            "const" if value != demand => out.push(format!("{at} is not {demand}")),
            "enum" if !demand.as_array().unwrap().contains(value) => {
                out.push(format!("{at} is none of {demand}"))
            }
            "minimum" if value.as_i64() < demand.as_i64() => out.push(format!("{at} is less than {demand}")),
            "required" => {
                for name in demand.as_array().unwrap() {
                    if value.is_object() && value.get(name.as_str().unwrap()).is_none() {
                        out.push(format!("{at} has no {name}"));
                    }
                }
            }
            "properties" => {
                for (name, schema) in demand.as_object().unwrap() {
                    if let Some(value) = value.get(name) {
                        check(root, schema, value, &format!("{at}.{name}"), out);
                    }
                }
            }
            "additionalProperties" => {
                let known = schema.get("properties");
                for (name, inner) in value.as_object().into_iter().flatten() {
                    let is_known = known.is_some_and(|it| it.get(name).is_some());
                    match demand {
                        Value::Bool(false) if !is_known => out.push(format!("{at} has an unknown {name}")),
                        Value::Object(_) if !is_known => {
                            check(root, demand, inner, &format!("{at}.{name}"), out)
                        }
                        _ => {}
                    }
                }
            }
            "items" => {
                for (index, inner) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, demand, inner, &format!("{at}[{index}]"), out);
                }
            }
            "$schema" | "title" | "description" | "$defs" | "const" | "enum" | "minimum" => {}
            other => panic!("the validator does not know `{other}`"),
        }
    }
}
