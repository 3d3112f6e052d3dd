//! One method of one route: its handler, and what the OpenAPI document says about it.

use axum::routing::MethodRouter;
use serde_json::{Map, Value, json};

use crate::{access::Needs, guarded_route::GuardedRoute, shared::Shared};

/// One method of one route.
pub(crate) struct Operation {
    route: GuardedRoute,
    summary: &'static str,
    parameters: Vec<Value>,
    body: Option<Value>,
    answers: Vec<(u16, Value)>,
    /// Whether it answers without credentials.
    is_open: bool,
}

/// The content of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    /// One object of this type.
    One(&'static str),
    /// A list of objects of this type.
    List(&'static str),
    Text,
    Nothing,
}

/// The type of a parameter of a query.
#[derive(Clone, Debug)]
pub(crate) enum Query {
    Text,
    Boolean,
    /// A number from 0 on.
    Number,
    /// One of these words.
    Word(Vec<&'static str>),
}

impl Operation {
    /// An operation that needs credentials with this permission.
    pub(crate) fn new(
        method: &'static str,
        path: &'static str,
        handler: MethodRouter<Shared>,
        summary: &'static str,
        needs: Needs,
    ) -> Self {
        let route = GuardedRoute::new(method, path, handler, needs);
        let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let parameters: Vec<_> = names.map(|name| path_parameter(path, name)).collect();
        let has_names = !parameters.is_empty();
        let (body, answers) = (None, Vec::new());
        let operation = Self { route, summary, parameters, body, answers, is_open: false };
        let operation = operation
            .fails(401, "There are no credentials, or wrong or expired ones.")
            .fails(403, "The actor has no scope for it, or a page of another origin asks.")
            .fails(429, "There were too many wrong tokens from this address.")
            .fails(503, "The agent is shutting down, or has too many requests.");
        if has_names { operation.malformed().fails(404, "There is no such object.") } else { operation }
    }

    /// An operation that answers without credentials, so the guard does not have its route.
    pub(crate) fn open(
        method: &'static str,
        path: &'static str,
        handler: MethodRouter<Shared>,
        summary: &'static str,
    ) -> Self {
        let operation = Self::new(method, path, handler, summary, Needs::Admin);
        Self { answers: Vec::new(), is_open: true, ..operation }
    }

    /// It changes something, which the audit calls by this word.
    pub(crate) fn audited(mut self, word: &'static str) -> Self {
        self.route = self.route.audited(word);
        self
    }

    /// The route without what the OpenAPI document says about it.
    pub(crate) fn into_route(self) -> GuardedRoute {
        self.route
    }

    /// An answer that is a success.
    pub(crate) fn answers(self, status: u16, content: Content, about: &str) -> Self {
        let json = |schema: Value| json!({ "description": about, "content": { "application/json": { "schema": schema } } });
        let reference = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
        self.answer(
            status,
            match content {
                Content::One(name) => json(reference(name)),
                Content::List(name) => json(json!({ "type": "array", "items": reference(name) })),
                Content::Text => {
                    json!({ "description": about, "content": { "text/plain": { "schema": { "type": "string" } } } })
                }
                Content::Nothing => json!({ "description": about }),
            },
        )
    }

    /// An answer that is an error.
    pub(crate) fn fails(self, status: u16, about: &str) -> Self {
        self.answers(status, Content::One("ErrorBody"), about)
    }

    /// A parameter of the query. Other parameters are errors.
    pub(crate) fn query(mut self, name: &str, query: Query, about: &str) -> Self {
        let schema = match query {
            Query::Text => json!({ "type": "string" }),
            Query::Boolean => json!({ "type": "boolean" }),
            Query::Number => json!({ "type": "integer", "minimum": 0 }),
            Query::Word(words) => json!({ "type": "string", "enum": words }),
        };
        self.parameters.push(json!({ "name": name, "in": "query", "description": about, "schema": schema }));
        self.malformed()
    }

    /// A body of JSON.
    pub(crate) fn body(mut self, name: &str, is_required: bool) -> Self {
        let schema = json!({ "$ref": format!("#/components/schemas/{name}") });
        self.body =
            Some(json!({ "required": is_required, "content": { "application/json": { "schema": schema } } }));
        let operation = self.malformed().fails(408, "The body did not arrive within 10 s.");
        operation.fails(413, "The body is too large.")
    }

    /// The application answers, which it may refuse.
    pub(crate) fn asks(self) -> Self {
        self.fails(409, "It is not possible in the present state; the message says what is.")
            .stores()
            .fails(502, "The engine did not answer.")
            .fails(504, "The agent did not answer within 30 s; the request may still be performed.")
    }

    /// The database answers.
    pub(crate) fn stores(self) -> Self {
        self.fails(500, "The database or the state directory failed; the log of the agent has the cause.")
    }

    /// An accepted request about an application.
    pub(crate) fn accepts(self) -> Self {
        self.answers(202, Content::One("Accepted"), "The request is accepted.").asks()
    }

    fn malformed(self) -> Self {
        self.fails(400, "A parameter or the body is not valid.")
    }

    fn answer(mut self, status: u16, answer: Value) -> Self {
        self.answers.retain(|(other, _)| *other != status);
        self.answers.push((status, answer));
        self
    }
}

/// A parameter in a path, with the example that the documents use.
fn path_parameter(path: &str, name: &str) -> Value {
    let example = match name {
        "workload" => "web",
        "instance" => "shop-web-1",
        "job" => "once",
        "token" => "ci",
        "id" => "0a1b2c3d4e5f",
        _ if path.contains("/fleet/") => "nas",
        _ if path.contains("/notifications/") => "phone",
        _ => "shop",
    };
    let text = json!({ "type": "string", "minLength": 1 });
    json!({ "name": name, "in": "path", "required": true, "schema": text, "example": example })
}

/// The `paths` of the OpenAPI document.
pub(crate) fn paths(operations: Vec<Operation>) -> Value {
    let mut paths = Map::new();
    for operation in operations {
        let Operation { route, summary, parameters, body, answers, is_open } = operation;
        let (method, path) = (route.method, route.path);
        let mut entry = json!({ "summary": summary, "operationId": operation_id(method, path) });
        if !parameters.is_empty() {
            entry["parameters"] = parameters.into();
        }
        if let Some(body) = body {
            entry["requestBody"] = body;
        }
        let answers = answers.into_iter().map(|(status, answer)| (status.to_string(), answer));
        entry["responses"] = Value::Object(answers.collect());
        if is_open {
            entry["security"] = json!([]);
        }
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        methods[method] = entry;
    }
    Value::Object(paths)
}

/// `postApplicationsSync` for `POST /api/v1/applications/{name}/sync`.
fn operation_id(method: &str, path: &str) -> String {
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    let words = path.split(['/', '-']).filter(|word| !word.is_empty() && !word.starts_with('{'));
    let mut id = method.to_owned();
    for word in words {
        let (first, rest) = word.split_at(1);
        id.push_str(&first.to_uppercase());
        id.push_str(rest);
    }
    if path.ends_with('}') { id + "One" } else { id }
}
