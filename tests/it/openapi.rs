//! The OpenAPI document of the API: made from the table of routes and from the types of the answers, and compared with
//! what the agent answers.

use std::{fs, path::Path, pin::Pin, sync::Arc};

use axum::{Router, body::Body};
use driftless_agent::{DryRun, Images, Inspection, Joined, LeftCollector, Logs};
use driftless_docker::{LogOptions, LogStream};
use driftless_fleet::{FleetHistoryEntry, FleetStatus, HostReport, JoinAnswer, JoinRequest, ReportAnswer};
use driftless_model::{
    AgentStatus, ApiToken, Application, AuditEntry, EffectiveSetting, Event, FreeSpace, ImageCleanup,
    ImageRetention, ImageUse, KeepReason, NotificationStatus, ObjectRef, PartSpec, RepositoryStatus,
    Revision, WebhookStatus,
};
use driftless_web::{
    Accepted, Access, CreatedInvite, EnrolmentBody, ErrorBody, FleetKeys, FleetRequest, FleetRequestBody,
    InviteBody, RollbackBody, ScaleBody, TestMessage, TokenBody, Waited, WhoAmI, openapi_paths, router,
};
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};
use tower::ServiceExt;

use crate::{
    sample::{Agent, agent, answer, blog, shop},
    schema_trace::Schemas,
};

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// The document, from the code.
fn document() -> Value {
    let mut schemas = Schemas::default();
    let object = json!({ "kind": "Deployment", "namespace": "shop", "name": "web" });
    let part = json!({ "name": "web", "role": "app", "image": "web:1" });
    schemas.give(
        "WorkloadSpec",
        json!({
            "type": "object",
            "description": "In the words of Kubernetes.",
            "allOf": [reference("ObjectRef")],
        }),
        object.clone(),
    );
    schemas.give(
        "ResourceStatus",
        json!({
            "type": "object",
            "description": "An object that runs nothing, such as a Service.",
            "allOf": [reference("ObjectRef")],
        }),
        json!({
            "created": null, "kind": "Secret", "namespace": "shop", "name": "web",
            "origin": { "file": "", "line": 0, "column": 0 }, "facts": { "configMap": { "keys": {} } },
        }),
    );
    schemas.give(
        "PartStatus",
        json!({
            "type": "object",
            "allOf": [reference("PartSpec")],
            "properties": { "instance": { "anyOf": [reference("InstanceStatus"), { "type": "null" }] } },
        }),
        part,
    );
    schemas.give(
        "CreatedToken",
        json!({
            "type": "object",
            "allOf": [reference("ApiToken")],
            "properties": { "secret": { "type": "string" } },
            "required": ["secret"],
        }),
        json!({}),
    );
    schemas.give(
        "KeepReason",
        json!({
            "type": "object",
            "properties": {
                "kind": { "enum": ["notBrought", "container", "revision", "otherName", "new"] },
                "name": { "type": "string" },
                "app": { "type": "string" },
                "number": { "type": "integer", "minimum": 0 },
            },
            "required": ["kind"],
        }),
        json!({ "kind": "new" }),
    );
    schemas.add::<ErrorBody>();
    schemas.add::<AgentStatus>();
    schemas.add::<ObjectRef>();
    schemas.add::<PartSpec>();
    schemas.add::<Application>();
    schemas.add::<Waited>();
    schemas.add::<Revision>();
    schemas.add::<DryRun>();
    schemas.add::<Inspection>();
    schemas.add::<EffectiveSetting>();
    schemas.add::<ImageUse>();
    schemas.add::<ImageCleanup>();
    schemas.add::<WhoAmI>();
    schemas.add::<FleetStatus>();
    schemas.add::<HostReport>();
    schemas.add::<FleetHistoryEntry>();
    schemas.add::<FleetKeys>();
    schemas.add::<ReportAnswer>();
    schemas.add::<FleetRequest>();
    schemas.add::<FleetRequestBody>();
    schemas.add::<InviteBody>();
    schemas.add::<CreatedInvite>();
    schemas.add::<JoinRequest>();
    schemas.add::<JoinAnswer>();
    schemas.add::<EnrolmentBody>();
    schemas.add::<Joined>();
    schemas.add::<LeftCollector>();
    schemas.add::<Event>();
    schemas.add::<RepositoryStatus>();
    schemas.add::<WebhookStatus>();
    schemas.add::<NotificationStatus>();
    schemas.add::<Accepted>();
    schemas.add::<RollbackBody>();
    schemas.add::<ScaleBody>();
    schemas.add::<TestMessage>();
    schemas.add::<ApiToken>();
    schemas.add::<TokenBody>();
    schemas.add::<AuditEntry>();
    schemas.add_given("CreatedToken");
    let mut found = schemas.found;
    // Bodies with other fields are refused.
    for name in [
        "RollbackBody",
        "ScaleBody",
        "TokenBody",
        "InviteBody",
        "EnrolmentBody",
        "FleetRequestBody",
        "JoinRequest",
    ] {
        found.get_mut(name).unwrap()["additionalProperties"] = json!(false);
    }
    found.insert("Document".to_owned(), json!({ "type": "object", "required": ["openapi", "paths"] }));
    found.insert(
        "ObjectList".to_owned(),
        json!({
            "type": "object",
            "description": "A List of Kubernetes: docs/kubectl.md.",
            "properties": {
                "apiVersion": { "const": "v1" },
                "kind": { "const": "List" },
                "items": { "type": "array", "items": { "type": "object" } },
            },
            "required": ["apiVersion", "kind", "items"],
        }),
    );
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Driftless",
            "description": "The API of an agent. Later releases may add fields: ignore those that you do not know.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }, { "basic": [] }, {}],
        "paths": openapi_paths(),
        "components": {
            "schemas": found,
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "A token of the agent." },
                "basic": { "type": "http", "scheme": "basic", "description": "The token is the password." },
            },
        },
    })
}

/// The document with a line for each route and each schema.
fn text(document: &Value) -> String {
    let lines = |map: &Value| {
        let entries = map.as_object().unwrap().iter();
        entries.map(|(key, value)| format!("{}:{value}", json!(key))).collect::<Vec<_>>().join(",\n")
    };
    let (mut rest, mut components) = (document.clone(), document["components"].clone());
    for key in ["paths", "components"] {
        rest.as_object_mut().unwrap().remove(key);
    }
    components.as_object_mut().unwrap().remove("schemas");
    format!(
        "{{{},\n\"paths\":{{\n{}\n}},\n\"components\":{{{},\n\"schemas\":{{\n{}\n}}}}}}\n",
        lines(&rest),
        lines(&document["paths"]),
        lines(&components),
        lines(&document["components"]["schemas"]),
    )
}

#[test]
fn openapi_document_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/web/openapi.json");
    let document = document();
    let made = text(&document);
    assert_eq!(serde_json::from_str::<Value>(&made).unwrap(), document);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, &made).unwrap();
    }
    let is_current = fs::read_to_string(&file).unwrap() == made;
    assert!(
        is_current,
        "crates/web/openapi.json is out of date: UPDATE_DOCS=1 cargo test --test it openapi::"
    );
}

/// All references of a value.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_reference_has_its_schema_and_every_schema_is_used() {
    let document = document();
    let mut found = Vec::new();
    references(&document, &mut found);
    for reference in &found {
        let pointer = reference.trim_start_matches('#');
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let unused = schemas.keys().filter(|name| !found.iter().any(|it| it.ends_with(&format!("/{name}"))));
    assert_eq!(unused.collect::<Vec<_>>(), Vec::<&String>::new());
}

/// The routes of the documentation for people, and those of the document, as `GET /path`.
#[test]
fn documentation_lists_the_routes_of_the_document() {
    let documentation = include_str!("../../docs/api.md");
    let rows = documentation.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let mut listed: Vec<String> =
        rows.map(|(row, _)| row.to_owned()).filter(|row| row.contains(" /") && row != "GET /").collect();
    let paths = openapi_paths();
    let mut known: Vec<String> = Vec::new();
    for (path, methods) in paths.as_object().unwrap() {
        known.extend(methods.as_object().unwrap().keys().map(|it| format!("{} {path}", it.to_uppercase())));
    }
    listed.sort();
    known.sort();
    assert_eq!(listed, known);
}

/// The parts of a value that its schema does not have, or has otherwise.
fn differences(value: &Value, schema: &Value, document: &Value, path: &str) -> Vec<String> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = document.pointer(reference.trim_start_matches('#')).unwrap();
        return differences(value, target, document, path);
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(options) = schema.get(key).and_then(Value::as_array) {
            let all = options.iter().map(|option| differences(value, option, document, path));
            return all.min_by_key(Vec::len).unwrap_or_default();
        }
    }
    if let Some(wanted) = schema.get("const") {
        return if value == wanted { Vec::new() } else { vec![format!("{path}: {value} is not {wanted}")] };
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let wanted = schema.get("type").and_then(Value::as_str);
    if wanted.is_some_and(|wanted| wanted != kind) {
        return vec![format!("{path}: {kind}, not {wanted:?}")];
    }
    let words = schema.get("enum").and_then(Value::as_array);
    if words.is_some_and(|words| !words.contains(value)) {
        return vec![format!("{path}: {value} is not one of {words:?}")];
    }
    match value {
        Value::Array(items) => {
            let schema = schema.get("items").cloned().unwrap_or(json!({}));
            let each = items.iter().flat_map(|item| differences(item, &schema, document, path));
            each.collect()
        }
        Value::Object(map) => object_differences(map, schema, document, path),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

fn object_differences(map: &Map<String, Value>, schema: &Value, document: &Value, path: &str) -> Vec<String> {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let missing = required.filter_map(Value::as_str).filter(|name| !map.contains_key(*name));
    let mut found: Vec<String> = missing.map(|name| format!("{path}.{name}: missing")).collect();
    let properties = schema.get("properties").and_then(Value::as_object);
    let rest = schema.get("additionalProperties");
    for (name, value) in map {
        let path = format!("{path}.{name}");
        match (properties.and_then(|it| it.get(name)), rest) {
            (Some(schema), _) | (None, Some(schema @ Value::Object(_))) => {
                found.extend(differences(value, schema, document, &path));
            }
            // A type that is not described field by field.
            (None, _) if properties.is_none() || schema.get("allOf").is_some() => {}
            (None, _) => found.push(format!("{path}: not in the document")),
        }
    }
    found
}

/// An engine with one image and silent containers.
struct QuietEngine;

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

impl Images for QuietEngine {
    fn uses<'a>(&'a self, _: &'a ImageRetention) -> Answer<'a, Vec<ImageUse>> {
        let names = [String::from("web:1")].into();
        let image = ImageUse {
            id: "sha256:0123".to_owned(),
            names,
            bytes: 1,
            brought_at: None,
            kept_for: vec![KeepReason::NotBrought],
        };
        Box::pin(std::future::ready(Ok(vec![image])))
    }

    fn clean_up<'a>(&'a self, _: &'a ImageRetention, _: Option<FreeSpace>) -> Answer<'a, ImageCleanup> {
        Box::pin(std::future::ready(Ok(ImageCleanup::default())))
    }

    fn prune_build_cache(&self, _: u64) -> Answer<'_, u64> {
        Box::pin(async { Ok(0) })
    }
}

impl Logs for QuietEngine {
    fn open<'a>(&'a self, _: &'a str, _: &'a LogOptions) -> Answer<'a, LogStream> {
        let none: LogStream = Box::pin(futures_util::stream::empty());
        Box::pin(std::future::ready(Ok(none)))
    }
}

/// The routes of an agent that answers, with samples of everything.
fn answering() -> Router {
    let Agent { handle, store, inbox } = agent([shop(), blog()]);
    tokio::spawn(answer(inbox, Arc::default()));
    let handle = handle.with_images(Arc::new(QuietEngine)).with_logs(Arc::new(QuietEngine));
    router(handle, store, Access::loopback())
}

/// Needs schemathesis: `make schemathesis`.
#[tokio::test]
#[ignore = "needs schemathesis"]
async fn schemathesis_finds_no_undocumented_answer() {
    let program = std::env::var("SCHEMATHESIS").expect("the program is in SCHEMATHESIS");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(driftless_web::serve(listener, answering(), std::future::pending()));
    let url = format!("http://{address}/api/v1/openapi.json");
    let status = tokio::process::Command::new("scripts/test-schemathesis.sh").args([&program, &url]).status();
    assert!(status.await.unwrap().success(), "schemathesis found something");
}

#[tokio::test]
async fn answers_are_as_the_document_says() {
    let document = document();
    let router = answering();
    let ask = async |method: &str, path: &str, body: &str| {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice::<Value>(&body).unwrap_or(Value::Null))
    };
    ask("POST", "/api/v1/tokens", r#"{"name": "ci", "scopes": ["read"]}"#).await;
    let mut seen = 0;
    for (route, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let path = route.replace("{name}", "shop").replace("{workload}", "web");
            let path =
                path.replace("{instance}", "shop-web-1").replace("{job}", "once").replace("{token}", "ci");
            let (status, body) = ask(&method.to_uppercase(), &path, "").await;
            let answers = operation["responses"].as_object().unwrap();
            if method == "get" {
                let (status, body) = ask("GET", &format!("{path}?limit=x&unknown=1"), "").await;
                assert!(
                    status != 400 || body["error"]["code"].is_string(),
                    "{route} answers {status}: {body}"
                );
            }
            let answer = answers.get(&status.to_string());
            let answer = answer.unwrap_or_else(|| panic!("{method} {route} answers {status}: {body}"));
            let Some(schema) = answer.pointer("/content/application~1json/schema") else { continue };
            let found = differences(&body, schema, &document, "");
            assert_eq!(found, Vec::<String>::new(), "{method} {route} answers {status}: {body}");
            seen += usize::from(status < 300);
        }
    }
    assert!(seen > 20, "{seen} successful answers were compared");
    let (status, created) = ask("POST", "/api/v1/tokens", r#"{"name": "two", "scopes": ["act"]}"#).await;
    assert_eq!(status, 201);
    let schema = reference("ApiToken");
    assert!(created["secret"].is_string());
    let mut token = created.clone();
    token.as_object_mut().unwrap().remove("secret");
    assert_eq!(differences(&token, &schema, &document, ""), Vec::<String>::new());
}
