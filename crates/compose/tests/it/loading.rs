//! Several Compose files as one application: include, extends, overrides, variables and profiles, up to the stack. Rules
//! about the canonical form alone have a file in `canonical/`.

use driftless_compose as compose;
use driftless_compose::Project;
use driftless_files::{AppSpec, HostValues, MemoryFiles, Rendered};
use driftless_manifest::{Configured, discover, render};
use driftless_model::{Finding, MountSource, Protocol, Stack, WorkloadName};
use serde_json::{Value, json};

pub(crate) fn app(files: &MemoryFiles, configured: Configured) -> AppSpec {
    let found = discover(files, "", "repository", &[configured]);
    assert_eq!(found.findings, []);
    found.apps.into_iter().next().unwrap()
}

pub(crate) fn at(path: &str) -> Configured {
    Configured { path: path.to_owned(), ..Configured::default() }
}

fn load(files: &MemoryFiles, configured: Configured) -> Project {
    compose::load(files, &app(files, configured), "/repo/app", None)
}

fn model(files: &[(&str, &str)], configured: Configured) -> Value {
    let files = MemoryFiles::new(files.iter().copied());
    let project = load(&files, configured);
    project.model.unwrap_or_else(|| panic!("{:#?}", project.findings))
}

fn errors(files: &[(&str, &str)], configured: Configured) -> Vec<String> {
    let files = MemoryFiles::new(files.iter().copied());
    let found = load(&files, configured).findings;
    found.into_iter().filter(Finding::is_error).map(|it| it.to_string()).collect()
}

pub(crate) fn stack(files: &[(&str, &str)], configured: Configured) -> Stack {
    let files = MemoryFiles::new(files.iter().copied());
    let Rendered { stack, findings, .. } = render(&files, &app(&files, configured));
    stack.unwrap_or_else(|| panic!("{findings:#?}"))
}

#[test]
fn included_project_has_its_own_folder_and_variables() {
    let files = [
        (
            "app/compose.yaml",
            "include: [../common/db/compose.yaml]\nservices: {web: {image: 'web:${TAG}', depends_on: [db]}}",
        ),
        ("app/.env", "TAG=2\n"),
        (
            "common/db/compose.yaml",
            "services: {db: {image: 'db:${TAG}-${OWN}', volumes: ['./conf:/conf:ro', 'data:/data']}}\nvolumes: {data: }",
        ),
        ("common/db/.env", "TAG=1\nOWN=own\n"),
        ("common/db/conf/a", "hello"),
    ];
    let stack = stack(&files, at("app"));
    let db = &stack.workloads[&WorkloadName::from("db")].container;
    assert_eq!(db.image, "db:2-own", "the including project's variables win");
    let conf = db.mounts.iter().find(|it| it.target == "/conf").unwrap();
    assert!(matches!(conf.source, MountSource::Content(_)), "{conf:?}");
    assert!(stack.volumes.contains_key("app_data"));
}

#[test]
fn including_file_wins_over_included_ones() {
    let files = [
        (
            "app/compose.yaml",
            "include: [{path: [a.yaml, b.yaml]}]\nservices: {web: {environment: {A: mine}, ports: !override ['82:80']}}",
        ),
        ("app/a.yaml", "services: {web: {image: web, ports: ['80:80'], environment: {A: a, B: a, C: a}}}"),
        ("app/b.yaml", "services: {web: {environment: {B: b}}}"),
    ];
    let web = &model(&files, at("app"))["services"]["web"];
    assert_eq!(web["environment"], json!({"A": "mine", "B": "b", "C": "a"}));
    assert_eq!(
        web["ports"],
        json!([{"mode": "ingress", "target": 80, "published": "82", "protocol": "tcp"}])
    );
}

#[test]
fn wrong_includes_are_reported_at_their_location() {
    let file = |list: &str| format!("services: {{web: {{image: a}}}}\ninclude:\n  - {list}\n");
    let messages = |list: &str| errors(&[("app/compose.yaml", &file(list))], at("app")).join("\n");
    let cases = [
        (
            "missing.yaml",
            "app/compose.yaml:3:5: error: include[0]: `app/missing.yaml` does not exist in the repository",
        ),
        (
            "../../x.yaml",
            "app/compose.yaml:3:5: error: include[0]: `../../x.yaml` is outside of the repository",
        ),
        ("oci://a/b", "app/compose.yaml:3:5: error: include[0]: remote files are not fetched"),
        ("compose.yaml", "app/compose.yaml:3:5: error: include[0]: the includes form a cycle"),
        ("{path: a.yaml, env: b}", "app/compose.yaml:3:20: error: include[0].env: unknown key `env`"),
        ("[]", "app/compose.yaml:3:5: error: include[0]: must be a map, but it is a list"),
    ];
    for (list, wanted) in cases {
        assert!(messages(list).contains(wanted), "{list}: {}", messages(list));
    }
}

#[test]
fn exponential_includes_are_refused() {
    let list = |next: &str| format!("include: [{}]\n", vec![next; 40].join(", "));
    let many: String = (0..300).map(|it| format!("A{it}: x, ")).collect();
    let files = [
        ("compose.yaml", list("b.yaml")),
        ("b.yaml", list("c.yaml")),
        ("c.yaml", list("d.yaml")),
        ("d.yaml", format!("services: {{web: {{image: a, environment: {{{many}}}}}}}")),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let messages = errors(&files, at(""));
    assert!(messages.iter().any(|it| it.contains("too many keys and values together")), "{messages:?}");
}

#[test]
fn extended_service_keeps_its_paths() {
    let files = [
        (
            "app/compose.yaml",
            "services: {web: {extends: {file: ../base/compose.yaml, service: base}, command: [run], environment: [B=2]}}",
        ),
        (
            "base/compose.yaml",
            "services: {base: {image: base, command: [base], environment: {A: 1, B: 1}, env_file: ./a.env, volumes: ['./d:/d']}}",
        ),
        ("base/a.env", "FROM_FILE=1"),
    ];
    let web = &model(&files, at("app"))["services"]["web"];
    assert_eq!(web["command"], json!(["run"]));
    assert_eq!(web["environment"], json!({"A": "1", "B": "2"}));
    assert_eq!(web["env_file"], json!([{"path": "/repo/base/a.env"}]));
    assert_eq!(web["volumes"][0]["source"], "/repo/base/d");
    let stack = stack(&files, at("app"));
    let container = &stack.workloads[&WorkloadName::from("web")].container;
    assert_eq!(container.env["FROM_FILE"].as_deref(), Some("1"));
}

#[test]
fn wrong_extends_are_reported_at_their_location() {
    let messages = |text: &str| {
        errors(&[("compose.yaml", text), ("b.yaml", "services: {x: {image: a}}")], at("")).join("\n")
    };
    let cases = [
        (
            "services: {a: {image: a, extends: b}}",
            "services.a.extends: the service `b` does not exist in `compose.yaml`",
        ),
        (
            "services: {a: {image: a, extends: a}}",
            "services.a.extends: the services extend each other in a cycle: a of compose.yaml → a of compose.yaml",
        ),
        (
            "services: {a: {image: a, extends: {file: b.yaml, service: y}}}",
            "services.a.extends: the service `y` does not exist in `b.yaml`",
        ),
        (
            "services: {a: {image: a, extends: {file: c.yaml, service: y}}}",
            "services.a.extends: `c.yaml` does not exist in the repository",
        ),
    ];
    for (text, wanted) in cases {
        assert!(messages(text).contains(wanted), "{text}: {}", messages(text));
    }
    let mut chain = "services:\n  s0: {image: a}\n".to_owned();
    for index in 1..200 {
        chain.push_str(&format!(
            "  s{:03}: {{extends: s{:03}}}\n",
            999 - index,
            if index == 199 { 0 } else { 998 - index }
        ));
    }
    assert!(messages(&chain).contains("levels"));
}

#[test]
fn service_without_its_base_has_one_error() {
    let compose = "services:
  unset: {extends: {file: '${ROOT}/shared.yaml', service: web}}
  again: {extends: {file: '${ROOT}/shared.yaml', service: web}}
  outside: {extends: {file: /etc/shared.yaml, service: web}}
  missing: {extends: {file: none.yaml, service: web}}
  lacking: {extends: {file: base.yaml, service: none}}
  indirect: {extends: outside}
  inner: {extends: {file: base.yaml, service: broken}}
  whole: {extends: {file: base.yaml, service: web}}
";
    let base = "services:\n  web: {image: a}\n  broken: {extends: nothing}\n";
    let files = MemoryFiles::new([("app/compose.yaml", compose), ("app/base.yaml", base)]);
    let spec = AppSpec::compose("app", &["app/compose.yaml"]);
    for findings in
        [compose::load(&files, &spec, "/repo/app", None).findings, compose::render(&files, &spec).findings]
    {
        let found: Vec<String> = findings.iter().map(|it| format!("{}: {}", it.path, it.message)).collect();
        assert_eq!(
            found,
            [
                "services.broken.extends: the service `nothing` does not exist in `app/base.yaml`",
                "services.unset.extends: the variable `ROOT` is not set, so the path of the other Compose file is incomplete",
                "services.outside.extends: `/etc/shared.yaml` is outside of the repository",
                "services.missing.extends: `app/none.yaml` does not exist in the repository",
                "services.lacking.extends: the service `none` does not exist in `app/base.yaml`",
            ]
        );
        let help = findings[1].help.as_deref().unwrap();
        assert!(help.contains("`variables`") && help.contains("--variable ROOT=…"), "{help}");
    }
}

#[test]
fn unset_variable_in_an_include_is_an_error() {
    let files =
        MemoryFiles::new([("app/compose.yaml", "include: ['$PWD/db.yaml', {path: 'a/$OTHER.yaml'}]\n")]);
    let spec = AppSpec::compose("app", &["app/compose.yaml"]);
    for findings in
        [compose::load(&files, &spec, "/repo/app", None).findings, compose::render(&files, &spec).findings]
    {
        let found: Vec<&str> = findings.iter().map(|it| it.message.as_str()).collect();
        assert_eq!(
            found,
            [
                "the variable `PWD` is not set, so the path of the other Compose file is incomplete",
                "the variable `OTHER` is not set, so the path of the other Compose file is incomplete",
            ]
        );
        assert!(findings[0].help.as_deref().unwrap().contains("relative to the folder of this file"));
    }
}

#[test]
fn unset_variable_hides_no_other_error_of_an_include() {
    for (text, expected) in [
        (
            "services: {web: {extends: {file: 'base$V.yaml', service: typo}}}\n",
            "the service `typo` does not exist in `app/base.yaml`",
        ),
        (
            "include: [{path: base.yaml, env_file: '${V}.env'}]\n",
            "`app/.env` does not exist in the repository",
        ),
    ] {
        let base = "services: {web: {image: 'web:1'}}\n";
        let files = MemoryFiles::new([("app/compose.yaml", text), ("app/base.yaml", base)]);
        let spec = AppSpec::compose("app", &["app/compose.yaml"]);
        let findings = compose::render(&files, &spec).findings;
        let errors: Vec<&str> =
            findings.iter().filter(|it| it.is_error()).map(|it| it.message.as_str()).collect();
        assert_eq!(errors, [expected]);
        let names_variable = |it: &str| it == "the variable `V` is not set and becomes empty";
        assert!(findings.iter().any(|it| names_variable(&it.message)), "{findings:?}");
    }
}

#[test]
fn settings_choose_files_and_variables() {
    let files = [
        ("app/base.yaml", "services: {web: {image: 'web:${TAG}', labels: [a=1], expose: [80]}}"),
        ("app/prod/over.yaml", "services: {web: {labels: {b: 2}, volumes: ['./x:/x']}}"),
        ("app/.env", "TAG=from-dotenv"),
        ("app/prod.env", "TAG=from-prod"),
        ("app/last.env", "OTHER=${TAG}"),
    ];
    let listed = Configured {
        files: vec!["base.yaml".to_owned(), "prod/over.yaml".to_owned()],
        env_files: vec!["prod.env".to_owned(), "last.env".to_owned()],
        ..at("app")
    };
    let found = model(&files, listed);
    let web = &found["services"]["web"];
    assert_eq!(web["image"], "web:from-prod");
    assert_eq!(web["labels"], json!({"a": "1", "b": "2"}));
    assert_eq!(web["volumes"][0]["source"], "/repo/app/x", "paths are relative to the project's folder");
}

#[test]
fn compose_file_variable_in_dotenv_is_honoured() {
    let files = [
        ("app/compose.yaml", "services: {web: {image: wrong}}"),
        ("app/a.yaml", "services: {web: {image: a}}"),
        ("app/b.yaml", "services: {web: {labels: [b]}}"),
        ("app/.env", "COMPOSE_FILE=a.yaml:b.yaml\nCOMPOSE_PROJECT_NAME=Other\n"),
    ];
    let found = model(&files, at("app"));
    assert_eq!(found["name"], "other");
    assert_eq!(found["services"]["web"]["image"], "a");
    assert_eq!(found["services"]["web"]["labels"], json!({"b": ""}));
    assert_eq!(stack(&files, at("app")).manifests, ["app/a.yaml", "app/b.yaml"]);
}

#[test]
fn hash_after_a_space_starts_a_comment_in_dotenv() {
    let files = [
        ("compose.yaml", "services: {web: {image: a, labels: {a: '${A}', b: '${B}', c: '${C}', d: '${D}'}}}"),
        (".env", "A=one # comment\nB=two#none\nC='three # none'\nD=\"four # none\" # comment\n"),
    ];
    let labels = &model(&files, at(""))["services"]["web"]["labels"];
    assert_eq!(*labels, json!({"a": "one", "b": "two#none", "c": "three # none", "d": "four # none"}));
}

#[test]
fn profiles_activate_services() {
    let text = "services: {web: {image: a}, debug: {image: b, profiles: [debug]}, test: {image: c, profiles: [test]}}";
    let active = |profiles: &[&str]| -> Vec<String> {
        let profiles = profiles.iter().map(|it| (*it).to_owned()).collect();
        let found = model(&[("compose.yaml", text)], Configured { profiles, ..at("") });
        found["services"].as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(active(&[]), ["web"]);
    assert_eq!(active(&["debug"]), ["debug", "web"]);
    assert_eq!(active(&["*"]), ["debug", "test", "web"]);
}

#[test]
fn findings_name_the_file_that_has_the_mistake() {
    let files = [
        (
            "app/compose.yaml",
            "include: [other.yaml]\nservices:\n  web:\n    image: a\n    enviroment: {}\n    deploy: {resources: {limits: {memory: 64}}}\n",
        ),
        ("app/other.yaml", "services:\n  db:\n    imgae: a\n"),
    ];
    let messages = errors(&files, at("app")).join("\n");
    for wanted in [
        "app/compose.yaml:5:5: error: services.web.enviroment: unknown key `enviroment` (did you mean `environment`?)",
        "app/compose.yaml:6:43: error: services.web.deploy.resources.limits.memory: must be a string, but it is a number",
        "app/other.yaml:3:5: error: services.db.imgae: unknown key `imgae` (did you mean `image`?)",
    ] {
        assert!(messages.contains(wanted), "{wanted}\n{messages}");
    }
}

#[test]
fn environment_of_the_process_is_not_used() {
    let files = [("compose.yaml", "services: {web: {image: 'a:${PATH:-none}', environment: [HOME]}}")];
    let found = model(&files, at(""));
    assert_eq!(found["services"]["web"]["image"], "a:none");
    assert_eq!(found["services"]["web"]["environment"], json!({"HOME": null}));
}

#[test]
fn canonical_form_reads_back_as_itself() {
    let text = "services: {web: {image: a, command: run 'a b', ports: ['80:80/udp', '90-91'], volumes: ['data:/d:ro', './x:/x:z'],\
                environment: {A: yes, B: 0123}, depends_on: [db], secrets: [s]}, db: {image: b, cpus: 0.5, mem_limit: 1g}}\n\
                volumes: {data: }\nsecrets: {s: {file: ./s}}";
    let first = model(&[("compose.yaml", text)], at(""));
    let again = first.to_string();
    let second = model(&[("compose.yaml", &again)], at(""));
    assert_eq!(first, second);
}

#[test]
fn settings_outside_of_the_repository_are_refused() {
    let files = MemoryFiles::new([("app/compose.yaml", "services: {web: {image: a}}")]);
    for (listed, env_files) in [(vec!["../../x.yaml"], vec![]), (vec![], vec!["/etc/passwd"])] {
        let own = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect();
        let configured = Configured { files: own(listed), env_files: own(env_files), ..at("app") };
        let found = discover(&files, "", "repository", &[configured]);
        let rendered = render(&files, &found.apps[0]);
        assert!(rendered.stack.is_none());
        let message = &rendered.findings[0].message;
        assert!(message.contains("outside of the repository"), "{message}");
    }
}

#[test]
fn passwords_without_value_are_errors_where_they_are_used() {
    let compose = "services:\n  db:\n    image: db\n    environment:\n      POSTGRES_PASSWORD: ${DB_PASSWORD}\n  \
                   cache:\n    image: cache\n    command: --requirepass ${CACHE_PASS} ${APP_SECRET-}\n    environment:\n      - APP_SECRET\n      \
                   - URL=redis://:${CACHE_PASS}@cache\n  off:\n    image: off\n    profiles: [off]\n    command: $OFF_PASSWORD\n  \
                   open:\n    image: open\n    command: ${A_PASSWORD:-} $A_TOKEN ${B_PASSWORD:-x} ${C_SECRET:+on}\n";
    let (files, configured) = (MemoryFiles::new([("app/compose.yaml", compose)]), at("app"));
    let errors = |rendered: Rendered| -> Vec<String> {
        let errors = rendered.findings.iter().filter(|finding| finding.is_error());
        errors.map(|finding| format!("{} {}", finding.location.line, finding.message)).collect()
    };
    let rendered = render(&files, &app(&files, configured.clone()));
    let warnings = rendered.findings.iter().filter(|finding| !finding.is_error());
    let warnings: Vec<&str> = warnings.map(|finding| finding.message.as_str()).collect();
    let becomes_empty = |name: &str| format!("the variable `{name}` is not set and becomes empty");
    let not_passed = "the variable `APP_SECRET` is not set, so the container does not have it".to_owned();
    assert_eq!(warnings, [not_passed, becomes_empty("OFF_PASSWORD"), becomes_empty("A_TOKEN")]);
    assert_eq!(
        errors(rendered),
        [
            "5 the variable `DB_PASSWORD` is not set, so an empty password would be used",
            "8 the variable `CACHE_PASS` is not set, so an empty password would be used",
        ]
    );
    let active = Configured { profiles: vec!["off".to_owned()], ..at("app") };
    assert_eq!(errors(render(&files, &app(&files, active))).len(), 3);
    let names = ["DB_PASSWORD", "CACHE_PASS", "APP_SECRET"];
    let variables = names.iter().map(|name| ((*name).to_owned(), String::new())).collect();
    let given = Configured { variables, ..at("app") };
    assert_eq!(errors(render(&files, &app(&files, given))), Vec::<String>::new());
    // The reference accepts them.
    assert!(load(&files, configured).model.is_some());
}

#[test]
fn unset_passwords_are_recognised_by_their_place() {
    let messages = |service: &str, variables: &str| {
        let compose = format!("services: {{a: {{image: a, {service}}}}}");
        let files = MemoryFiles::new([("app/compose.yaml", compose.as_str()), ("app/.env", variables)]);
        let findings = render(&files, &app(&files, at("app"))).findings;
        findings.iter().map(|finding| (finding.is_error(), finding.message.clone())).collect::<Vec<_>>()
    };
    let refused = (true, "the variable `X` is not set, so an empty password would be used".to_owned());
    let empty = (false, "the variable `X` is not set and becomes empty".to_owned());
    for service in [
        "environment: {DB_PASSWORD: '${X}'}",
        "environment: ['MYSQL_ROOT_PASSWORD=${X}']",
        "environment: {URL: 'postgres://u:${X}@h/d'}",
        "command: [--requirepass, '${X}']",
        "command: [app, '--password=${X}']",
        "command: 'redis-server --requirepass $X --port 1'",
        "healthcheck: {test: [CMD, app, --db-password, '$X']}",
    ] {
        assert_eq!(messages(service, ""), std::slice::from_ref(&refused), "{service}");
        assert_eq!(messages(service, "X=\n"), [], "{service}: empty on purpose");
        let with_default = service.replace("${X}", "${X:-}").replace("$X", "${X-}");
        assert_eq!(messages(&with_default, ""), [], "{with_default}");
    }
    for service in [
        "environment: {DB_USER: '${X}', PASSWORD_FILE: '${X}'}",
        "environment: {DB_PASSWORD: 'a${X}'}",
        "environment: {API_TOKEN: '${X}'}",
        "command: [--user, '${X}', '--prefix=${X}']",
        "labels: {db.password: '${X}'}",
    ] {
        assert_eq!(messages(service, ""), std::slice::from_ref(&empty), "{service}");
    }
}

#[test]
fn unset_passwords_are_found_through_extends_and_include() {
    let files = MemoryFiles::new([
        (
            "app/compose.yaml",
            "x-env: &env\n  PW: ${ANCHOR_PASSWORD}\ninclude: [../db/compose.yaml]\nservices:\n  web:\n    extends: {file: \
             base.yaml, service: base}\n    environment:\n      <<: *env\n",
        ),
        (
            "app/base.yaml",
            "services: {base: {image: a, command: '$BASE_PASSWORD'}, other: {image: '$OTHER_PASSWORD'}}",
        ),
        ("db/compose.yaml", "services: {db: {image: db, command: '$DB_PASSWORD'}}"),
    ]);
    let rendered = render(&files, &app(&files, at("app")));
    let errors = rendered.findings.iter().filter(|finding| finding.is_error());
    let places: Vec<String> = errors
        .map(|finding| format!("{}:{} {}", finding.location.file, finding.location.line, finding.path))
        .collect();
    assert_eq!(
        places,
        [
            "app/base.yaml:1 services.web.command",
            "app/compose.yaml:2 services.web.environment.PW",
            "db/compose.yaml:1 services.db.command",
        ]
    );
}

#[test]
fn paths_without_their_start_are_errors() {
    let compose = |value: &str| {
        format!(
            "x-mounts: &mounts\n  - {value}/anchored:/a\nservices:\n  db:\n    image: db\n    volumes:\n      - {value}/data:/var/lib/db\n      \
             - {{type: bind, source: '{value}/conf', target: /conf}}\n    secrets: [key]\n  other: {{image: a, volumes: *mounts}}\n  \
             off: {{image: a, profiles: [off], volumes: ['{value}/data:/d']}}\nsecrets: {{key: {{file: '{value}/key.pem'}}}}\nvolumes:\n  \
             bound: {{driver_opts: {{type: none, o: bind, device: '{value}'}}}}\n"
        )
    };
    let findings = |value: &str, variables: &str| {
        let compose = compose(value);
        let files = MemoryFiles::new([("app/compose.yaml", compose.as_str()), ("app/.env", variables)]);
        render(&files, &app(&files, at("app"))).findings
    };
    let errors = |value: &str, variables: &str| -> Vec<String> {
        let mut found = findings(value, variables);
        found.retain(Finding::is_error);
        found.iter().map(|it| format!("{}:{} {}", it.location.line, it.location.column, it.path)).collect()
    };
    // Each variable is reported at its first place.
    assert_eq!(errors("${PWD}", ""), ["7:9 services.db.volumes[0]"]);
    assert_eq!(errors("$A${B}", "B=\n").len(), 1);
    for (value, variables) in [
        ("${A}", "A=/srv\n"),
        ("${A}", "A=\n"),
        ("${A:-}", ""),
        ("/mnt/${A}", ""),
        // A prefix, for a root of tests.
        ("${A}${B}", "B=/srv\n"),
        ("${A}${B:-/srv}", ""),
    ] {
        assert_eq!(errors(value, variables), Vec::<String>::new(), "{value} {variables}");
    }
    let error = findings("${HOME}", "").into_iter().find(Finding::is_error).unwrap();
    assert_eq!(
        error.message,
        "the variable `HOME` is not set, so the path would start at the root of the host"
    );
    assert!(error.help.is_some_and(|help| help.contains("write the absolute path of the host, or `./…`")));
    let error = findings("${DATA_DIR}", "").into_iter().find(Finding::is_error).unwrap();
    assert!(error.help.is_some_and(|help| help.contains("`variables`") && help.contains("`${DATA_DIR:-}`")));
}

#[test]
fn mount_without_a_source_names_the_unset_variable() {
    let compose = "services:\n  tv:\n    image: a\n    volumes:\n      - ${MEDIA}:/media\n      \
                   - {type: bind, source: '${MEDIA}', target: /m}\n      - ${MEDIA}/tv:/tv\n  films:\n    image: a\n    \
                   volumes:\n      - {type: bind, source: '${FILMS}', target: /films}\n      - ${HALF}:/half\n      - ':/x'\n";
    let files = MemoryFiles::new([("app/compose.yaml", compose), ("app/.env", "HALF=$HOME\n")]);
    let (errors, warnings): (Vec<Finding>, Vec<Finding>) =
        render(&files, &app(&files, at("app"))).findings.into_iter().partition(Finding::is_error);
    let found: Vec<String> =
        errors.iter().map(|it| format!("{} {}: {}", it.location, it.path, it.message)).collect();
    assert_eq!(
        found,
        [
            "app/.env:1 services.films.volumes[1]: a variable in the value of `HALF` is not set, so the mount has no source",
            "app/compose.yaml:5:9 services.tv.volumes[0]: the variable `MEDIA` is not set, so the mount has no source",
            "app/compose.yaml:11:9 services.films.volumes[0]: the variable `FILMS` is not set, so the mount has no source",
            "app/compose.yaml:13:9 services.films.volumes[2]: the volume has an empty part between colons",
        ]
    );
    assert!(!warnings.iter().any(|it| it.message.contains("becomes empty")), "{warnings:?}");
    // `config` says the same.
    let of_config = load(&files, at("app")).findings;
    assert!(!of_config.iter().any(|it| it.message.contains("becomes empty")), "{of_config:?}");
    assert_eq!(of_config.into_iter().filter(Finding::is_error).collect::<Vec<_>>(), errors);
}

#[test]
fn value_without_a_required_variable_has_one_error() {
    let compose = "services:\n  dns:\n    image: a\n    ports: ['${IP:?set it in .env}:53:53']\n    volumes:\n      - \
                   {type: bind, source: '${WORK:?set it}', target: /w}\n      - ${DATA:?set it}:/data\n";
    let files = MemoryFiles::new([("app/compose.yaml", compose)]);
    for findings in [load(&files, at("app")).findings, render(&files, &app(&files, at("app"))).findings] {
        let found: Vec<String> = findings.iter().map(|it| format!("{}: {}", it.path, it.message)).collect();
        assert_eq!(
            found,
            [
                "services.dns.ports[0]: required variable `IP` is missing a value: set it in .env",
                "services.dns.volumes[0].source: required variable `WORK` is missing a value: set it",
                "services.dns.volumes[1]: required variable `DATA` is missing a value: set it",
            ]
        );
    }
}

/// As in a Compose file. A text after a dollar sign may be a part of a password, so it is in no finding.
#[test]
fn unset_variables_in_env_files_are_reported_at_their_line() {
    let compose = "services:\n  db:\n    image: db\n    command: ['--requirepass', '${REDIS}', '$LOOSE', '${GIVEN:-x}']\n    \
                   volumes: ['${DATA}/db:/var/lib/db', '${LATER}/x:/x', '${INNER}:/y']\n    environment: [BARE_PASSWORD, \
                   OWN_PASSWORD=x]\n    env_file: [first.env, second.env]\n    label_file: db.labels\n";
    let dotenv = "ROOT=$HOME\nDATA=$ROOT/data\nLATER=/srv$uperSecret1\nREDIS=$uperSecret1\nBARE_PASSWORD=$uperSecret1\n\
                  LOOSE=S3cr$uperSecret1\nTOP=/srv\nINNER=$HOME${TOP}/y\nGIVEN=$HOME\nQUOTED='$uperSecret1' # one\nDOLLAR=$$x\n";
    let files = MemoryFiles::new([
        ("app/compose.yaml", compose),
        ("app/.env", dotenv),
        ("app/first.env", "A_PASSWORD=$uperSecret1\nOWN_PASSWORD=$x\nB_PASSWORD=$x\nURL=db://u:$x@h\n"),
        ("app/second.env", "C=a$x\nB_PASSWORD=given\n"),
        ("app/db.labels", "users=admin:$apr1\n"),
    ]);
    let findings = render(&files, &app(&files, at("app"))).findings;
    let found = |is_error: bool| -> Vec<String> {
        let found = findings.iter().filter(|finding| finding.is_error() == is_error);
        found.map(|it| format!("{}:{} {}", it.location.file, it.location.line, it.path)).collect()
    };
    assert_eq!(
        found(true),
        [
            "app/.env:1 services.db.volumes[0]",
            "app/.env:3 services.db.volumes[1]",
            "app/.env:4 services.db.command[1]",
            "app/.env:5 services.db.environment[0]",
            "app/.env:6 services.db.command[2]",
            "app/first.env:1 ",
            "app/first.env:4 ",
        ]
    );
    assert_eq!(found(false), ["app/.env:8 ", "app/.env:9 ", "app/db.labels:1 ", "app/second.env:1 "]);
    assert!(findings.iter().all(|finding| !finding.to_string().contains("uperSecret1")), "{findings:?}");
    let message = &findings.iter().find(|finding| finding.location.line == 4).unwrap().message;
    assert_eq!(message, "a variable in the value of `REDIS` is not set, so an empty password would be used");
    // The reference accepts them.
    assert!(load(&files, at("app")).model.is_some());
}

/// A project that is included has its own `.env`, and the host may have a file of variables.
#[test]
fn unset_variables_in_other_env_files_are_reported_too() {
    let files = MemoryFiles::new([
        (
            "app/compose.yaml",
            "include: [../db/compose.yaml]\nservices: {web: {image: a, command: 'a $HOST_SECRET'}}",
        ),
        ("db/compose.yaml", "services: {db: {image: b, volumes: ['$DATA:/data']}}"),
        ("db/.env", "\nDATA=$PWD/data\n"),
    ]);
    let mut spec = app(&files, at("app"));
    spec.host_values = vec![HostValues {
        source: "/etc/app.env".to_owned(),
        name: None,
        text: "HOST_SECRET=$uperSecret1\n".into(),
        is_shared: false,
        is_secret: true,
    }];
    let findings = render(&files, &spec).findings;
    let found: Vec<String> = findings.iter().map(|it| format!("{} {}", it.location, it.is_error())).collect();
    assert_eq!(found, ["/etc/app.env:1 true", "db/.env:2 true"]);
}

#[test]
fn source_of_several_applications_names_no_project() {
    let files = MemoryFiles::new([("app/compose.yaml", "name: mine\nservices: {web: {image: a}}")]);
    let source = |name: Option<&str>, text: &str, is_shared| HostValues {
        source: "/etc/notes.env".to_owned(),
        name: name.map(str::to_owned),
        text: text.into(),
        is_shared,
        is_secret: true,
    };
    let rendered = |host_values| render(&files, &AppSpec { host_values, ..app(&files, at("app")) });
    let shared = source(None, "TAG=1\nCOMPOSE_PROJECT_NAME=notes\n", true);
    let findings = rendered(vec![shared.clone()]).findings;
    let [error] = &findings[..] else { panic!("{findings:?}") };
    assert!(error.is_error() && error.path == "COMPOSE_PROJECT_NAME", "{error}");
    assert_eq!(error.location.to_string(), "/etc/notes.env:2");

    let own = source(Some("COMPOSE_PROJECT_NAME"), "own", false);
    for (sources, name, place) in [
        (vec![HostValues { is_shared: false, ..shared.clone() }], "notes", "/etc/notes.env:2"),
        (vec![shared, own], "own", "/etc/notes.env"),
        (vec![source(None, "TAG=1\n", true)], "mine", "app/compose.yaml:1:7"),
    ] {
        let stack = rendered(sources).stack.unwrap();
        assert_eq!((stack.project.as_str(), &*stack.project_location().to_string()), (name, place));
    }
}

#[test]
fn each_place_of_a_path_without_its_start_is_an_error() {
    let is_refused = |text: &str| {
        let files = MemoryFiles::new([("app/compose.yaml", text)]);
        let findings = render(&files, &app(&files, at("app"))).findings;
        findings
            .iter()
            .any(|it| it.is_error() && it.message.starts_with("the variable `X` is not set, so the path"))
    };
    let places = [
        "x-m: &m ['$X/d:/d']\nservices: {a: {image: a, volumes: *m}}",
        "services: {a: {image: a, volumes: [{type: bind, source: '$X/d', target: /d}]}}",
        "services: {a: {image: a, configs: [c]}}\nconfigs: {c: {file: '$X/c'}}",
        "services: {a: {image: a, secrets: [c]}}\nsecrets: {c: {file: '$X/c'}}",
        "services: {a: {image: a, volumes: ['data:/d']}}\nvolumes: {data: {driver_opts: {o: bind, device: '$X/d'}}}",
    ];
    for text in places {
        assert!(is_refused(text), "{text}");
        assert!(!is_refused(&text.replace("$X", "${X:-}")), "{text}");
    }
}

/// Docker Compose drops what no active service uses, and so does the agent.
#[test]
fn unused_volumes_configs_and_secrets_may_lack_variables() {
    let compose = "services:\n  app: {image: a}\n  backup:\n    image: b\n    profiles: [backup]\n    volumes: ['nas:/nas']\n    \
                   secrets: [key]\n    configs: [text]\n    build: {context: ., secrets: [token]}\nvolumes:\n  nas: {driver_opts: {type: nfs, \
                   device: '${NAS}/export'}}\nsecrets:\n  key: {file: '${KEYS}/key'}\n  token: {file: '${TOKENS}/token'}\nconfigs:\n  text: \
                   {content: 'password=${DB_PASSWORD}'}\n";
    let errors = |profiles: &[&str]| -> Vec<String> {
        let files = MemoryFiles::new([("app/compose.yaml", compose), ("app/Dockerfile", "FROM a")]);
        let profiles = profiles.iter().map(|it| (*it).to_owned()).collect();
        let mut found = render(&files, &app(&files, Configured { profiles, ..at("app") })).findings;
        found.retain(|it| it.is_error() && it.message.contains("is not set, so"));
        found.into_iter().map(|it| it.path).collect()
    };
    assert_eq!(errors(&[]), Vec::<String>::new());
    assert_eq!(
        errors(&["backup"]),
        ["volumes.nas.driver_opts.device", "secrets.key.file", "secrets.token.file", "configs.text.content"]
    );
}

/// As Docker Compose 2.26: the first file's folder is that of the project, and its `.env` counts after the first one.
#[test]
fn compose_file_variable_may_name_another_folder() {
    let files = [
        ("app/.env", "COMPOSE_FILE=../common/compose.yaml\nA=app\nONLY_APP=1\n"),
        ("common/.env", "A=common\nONLY_COMMON=1\n"),
        (
            "common/compose.yaml",
            "services: {web: {image: 'web:$A-$ONLY_APP-$ONLY_COMMON', env_file: web.env, volumes: ['./conf:/conf:ro', \
             './data:/data']}}",
        ),
        ("common/web.env", "FROM=common"),
        ("app/web.env", "FROM=app"),
        ("common/conf/a", "hello"),
    ];
    let found = model(&files, at("app"));
    assert_eq!(found["name"], "app");
    assert_eq!(found["services"]["web"]["image"], "web:app-1-1");
    assert_eq!(found["services"]["web"]["volumes"][0]["source"], "/repo/common/conf");
    let container = stack(&files, at("app")).workloads.remove(&WorkloadName::from("web")).unwrap().container;
    assert_eq!(container.env["FROM"].as_deref(), Some("common"));
    let sources: Vec<&MountSource> = container.mounts.iter().map(|mount| &mount.source).collect();
    assert!(matches!(sources[0], MountSource::Content(_)), "{sources:?}");
    assert_eq!(*sources[1], MountSource::AppFolder("_parent/common/data".into()));
}

#[test]
fn compose_file_variable_of_an_env_file_is_enough() {
    let files = [
        ("app/prod.env", "COMPOSE_FILE=files/compose.yaml\nTAG=2\n"),
        ("app/files/compose.yaml", "services: {web: {image: 'web:$TAG$MORE'}}"),
        ("app/files/.env", "MORE=no"),
    ];
    let env_files = vec!["prod.env".to_owned()];
    let found = model(&files, Configured { env_files, ..at("app") });
    assert_eq!(found["services"]["web"]["image"], "web:2", "an env file takes the place of every `.env`");
    let variables = [("COMPOSE_FILE".to_owned(), "files/compose.yaml".to_owned())].into();
    let found = model(&files, Configured { variables, ..at("app") });
    assert_eq!(found["services"]["web"]["image"], "web:no");
    let nothing = discover(&MemoryFiles::new(files), "", "repository", &[at("app")]);
    assert!(nothing.apps.is_empty() && nothing.findings.len() == 1, "{:?}", nothing.findings);
}

#[test]
fn file_that_cannot_be_parsed_is_the_only_error() {
    let broken = "services:\n  app:\n    image: [\n";
    let overriding = "services:\n  app:\n    environment: {A: '1'}\n    depends_on: [db]\n";
    let files = [("app/compose.yaml", broken), ("app/compose.override.yaml", overriding)];
    let memory = MemoryFiles::new(files);
    let rendered = render(&memory, &app(&memory, at("app")));
    assert!(rendered.stack.is_none());
    let of_rendering: Vec<String> = rendered.findings.iter().map(ToString::to_string).collect();
    for found in [errors(&files, at("app")), of_rendering] {
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].starts_with("app/compose.yaml:"), "{found:#?}");
    }
}

#[test]
fn project_without_services_is_refused_by_the_agent_alone() {
    let files = MemoryFiles::new([("app/compose.yaml", "volumes: {data: }\nnetworks: {net: }\n")]);
    let project = load(&files, at("app"));
    assert!(project.model.is_some());
    assert_eq!(project.findings[0].message, "the file has no services, so the agent refuses it");
    let rendered = render(&files, &app(&files, at("app")));
    assert!(rendered.stack.is_none());
    assert_eq!(rendered.findings[0].message, "the file has no services");
}

#[test]
fn settings_that_the_engine_would_not_honour_are_refused() {
    let compose = "services:\n  db:\n    image: db\n    network_mode: bridge\n  web:\n    image: web\n    network_mode: \
                   bridge\n    links: [db]\n    healthcheck:\n      test: [CMD, a]\n      start_interval: 5s\n";
    let files = MemoryFiles::new([("app/compose.yaml", compose)]);
    assert!(load(&files, at("app")).model.is_some(), "the reference accepts it");
    let findings = render(&files, &app(&files, at("app"))).findings;
    let errors: Vec<String> =
        findings.iter().map(|it| format!("{} {}", it.location.line, it.message)).collect();
    assert_eq!(
        errors,
        [
            "8 links on the engine's default bridge are not supported: the name would not resolve",
            "11 needs `start_period`, the time in which it applies",
        ]
    );
    let right = compose
        .replace("    links: [db]\n", "")
        .replace("start_interval", "start_period: 9s\n      start_interval");
    let files = MemoryFiles::new([("app/compose.yaml", right.as_str())]);
    assert_eq!(render(&files, &app(&files, at("app"))).findings, []);
}

#[test]
fn file_of_version_1_gets_one_error_with_the_way_out() {
    let files =
        [("compose.yaml", "db:\n  image: db\n  volumes: [./data:/data]\nweb:\n  build: .\n  links: [db]\n")];
    assert_eq!(
        errors(&files, at("")),
        [
            "compose.yaml:1:1: error: db: `db` is a service at the top level, as in version 1 of Compose files (put all \
             services under `services:`)"
        ]
    );
    let files = MemoryFiles::new(files);
    let rendered = render(&files, &app(&files, at("")));
    assert_eq!(rendered.findings.len(), 1, "{:#?}", rendered.findings);
}

#[test]
fn exceeded_limit_is_one_error_without_those_that_follow() {
    let services: String =
        (0..120).map(|n| format!("  s{n}: {{extends: {{file: big.yaml, service: b{n}}}}}\n")).collect();
    let list = "a, ".repeat(900);
    let big: String = (0..100).map(|n| format!("  b{n}: {{image: a, command: [{list}]}}\n")).collect();
    let (services, big) = (format!("services:\n{services}"), format!("services:\n{big}"));
    let errors = errors(&[("compose.yaml", &services), ("big.yaml", &big)], at(""));
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert!(errors[0].contains("too many keys and values together"), "{errors:?}");
}

#[test]
fn values_that_are_too_large_are_one_error() {
    let services: String = (0..40).map(|n| format!("  s{n}: {{image: a, command: '$A$A$A$A'}}\n")).collect();
    let text = format!("services:\n{services}");
    let files = MemoryFiles::new([("compose.yaml", text.as_str())]);
    let variables = [("A".to_owned(), "x".repeat(1 << 19))].into();
    let findings = load(&files, Configured { variables, ..at("") }).findings;
    let errors: Vec<&str> = findings.iter().map(|it| it.message.as_str()).collect();
    let expected =
        "with these 2048 KiB, the variables and interpolated values of this application exceed 32 MiB";
    assert_eq!(errors, [expected]);
}

#[test]
fn conflicts_of_host_ports_point_at_the_port() {
    let compose = "services:\n  a:\n    image: a\n    ports:\n      - 81:81\n      - 80:80\n  b:\n    image: b\n    ports:\n      \
                   - 82:82\n      - {target: 8080, published: 80}\n  c:\n    image: c\n    ports:\n      - '90:1'\n      - '90:2'\n";
    let files = MemoryFiles::new([("app/compose.yaml", compose)]);
    let findings = render(&files, &app(&files, at("app"))).findings;
    let errors: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "app/compose.yaml:11:9: error: services.b.ports[1]: the host port 80/tcp is taken already (app/compose.yaml:6:9)",
            "app/compose.yaml:16:9: error: services.c.ports[1]: the host port 90/tcp is published twice",
        ]
    );
}

#[test]
fn every_port_of_a_large_range_has_its_place() {
    let compose =
        "services:\n  sip:\n    image: a\n    ports:\n      - 10000-20000:10000-20000/udp\n      - 10000:1\n";
    let stack = stack(&[("app/compose.yaml", compose)], at("app"));
    assert_eq!(stack.port_places.len(), 10_002);
    let place = |port, protocol| stack.port_places[&(WorkloadName::from("sip"), port, protocol)].clone();
    assert_eq!(place(20_000, Protocol::Udp).location.line, 5);
    assert_eq!(place(10_000, Protocol::Tcp).location.line, 6);
    assert!(place(10_000, Protocol::Udp).path.starts_with("services.sip.ports["));
}

#[test]
fn project_name_has_the_place_that_gives_it() {
    let text = "services: {web: {image: a}}\nname: tshop\n";
    let given = stack(&[("app/compose.yaml", text)], at("app"));
    assert_eq!(given.project_location().to_string(), "app/compose.yaml:2:7");
    let from_folder = stack(&[("app/compose.yaml", "services: {web: {image: a}}\n")], at("app"));
    assert_eq!(from_folder.project_location().to_string(), "app/compose.yaml");
}

#[test]
fn volume_of_one_letter_is_explained_at_its_place() {
    let text = "services:\n  web:\n    image: a\n    volumes: [\"v:/data\"]\nvolumes: {v: }\n";
    let files = MemoryFiles::new([("app/compose.yaml", text)]);
    let findings = render(&files, &app(&files, at("app"))).findings;
    let errors: Vec<String> = findings.iter().filter(|it| it.is_error()).map(ToString::to_string).collect();
    let expected = "app/compose.yaml:4:15: error: services.web.volumes[0]: `v:/data` is read as a path on a Windows \
                    drive, because one letter is before the `:` (give the volume a name of two or more letters)";
    assert_eq!(errors, [expected]);
}
