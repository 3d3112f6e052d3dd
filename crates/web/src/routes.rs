//! The routes of the API in one table, from which the router and the OpenAPI document are made.

use axum::{
    middleware::from_fn,
    response::{IntoResponse, Response},
    routing::{delete, get, post, put},
};
use http::header;
use serde_json::Value;

use crate::{
    access::{Needs, audit::REPORT},
    access_routes,
    acting::act_without_client,
    api, events, fleet, fleet_keys, fleet_requests,
    guarded_route::GuardedRoute,
    images, metrics, notifications, objects,
    operation::{
        Content::{List, Nothing, One, Text},
        Operation, Query, paths,
    },
    page, wait, workloads,
};
use driftless_model::IncidentKind;

/// The routes behind the checks of access: those of the page, and those of the API.
pub(super) fn guarded() -> Vec<GuardedRoute> {
    let mut routes = page::routes();
    routes.extend(guarded_operations().into_iter().map(Operation::into_route));
    routes
}

fn guarded_operations() -> Vec<Operation> {
    let mut operations = questions();
    operations.extend(questions_about_applications());
    operations.extend(requests());
    operations.extend(requests_about_workloads());
    operations.push(sample_message());
    operations.extend(requests_about_canaries());
    operations.extend(administration());
    operations.extend(fleet_administration());
    operations.extend(fleet_membership());
    operations
}

/// The routes that answer without credentials.
pub(super) fn open() -> Vec<Operation> {
    vec![
        Operation::open("get", "/healthz", get(healthz), "Whether the process lives")
            .answers(200, Text, "It does."),
        Operation::open("get", "/readyz", get(api::readyz), "Whether the agent can do its work")
            .answers(200, Text, "It can.")
            .answers(503, Text, "It cannot; clients that may read learn why."),
        Operation::open(
            "post",
            "/api/v1/fleet/join",
            post(fleet_keys::join).layer(from_fn(act_without_client)),
            "Enrol a host that has an invite",
        )
        .body("JoinRequest", true)
        .answers(200, One("JoinAnswer"), "The host is enrolled; the answer is signed by the collector.")
        .fails(403, "The token is not of this collector, was used or has expired, or is for another host.")
        .fails(404, "This agent accepts no reports.")
        .fails(409, "Another machine is enrolled with the name.")
        .fails(429, "There were too many wrong tokens or signatures from this address.")
        .fails(507, "There are too many hosts.")
        .stores(),
    ]
}

/// The `paths` of the OpenAPI document. A test completes it with the schemas of the types and compares it with the document
/// that is served.
pub fn openapi_paths() -> Value {
    paths(open().into_iter().chain(guarded_operations()).collect())
}

/// The OpenAPI document.
const DOCUMENT: &str = include_str!("../openapi.json");

/// Answers while the process and its scheduler run.
async fn healthz() -> &'static str {
    "ok\n"
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

const NAMESPACE: &str = "The namespace, if pods of several namespaces have this name";

fn questions() -> Vec<Operation> {
    let read = |path, handler, summary| Operation::new("get", path, handler, summary, Needs::Read);
    vec![
        read("/metrics", get(metrics::metrics), "Metrics in the text format of Prometheus").answers(
            200,
            Text,
            "The metrics.",
        ),
        read("/api/v1/openapi.json", get(openapi), "This document").answers(
            200,
            One("Document"),
            "The OpenAPI document.",
        ),
        read("/api/v1/agent", get(api::agent), "The agent itself").answers(
            200,
            One("AgentStatus"),
            "Its version, host and problems.",
        ),
        read("/api/v1/images", get(images::list), "The images of the engine, and what each is kept for")
            .answers(200, List("ImageUse"), "The images.")
            .fails(502, "The engine did not answer."),
        read("/api/v1/whoami", get(access_routes::whoami), "The actor who asks").answers(
            200,
            One("WhoAmI"),
            "The actor and its scopes.",
        ),
        read("/api/v1/fleet/hosts", get(fleet::list), "The fleet")
            .answers(200, One("FleetStatus"), "The hosts, worst first, and the collectors.")
            .stores(),
        Operation::new(
            "get",
            "/api/v1/fleet/peers",
            get(fleet::peers),
            "The other hosts, for hosts that wait for them",
            Needs::Peers,
        )
        .query("applications", Query::Text, "Only these applications, with commas. Default: all")
        .answers(200, One("FleetStatus"), "The hosts, without messages.")
        .fails(404, "This agent accepts and reads no reports.")
        .stores(),
        read("/api/v1/fleet/history", get(fleet::history), "What ran where, newest first")
            .query("host", Query::Text, "Only this host")
            .query("app", Query::Text, "Only this application")
            .query("limit", Query::Number, "Number of entries, at most 1000. Default: 100")
            .answers(200, List("FleetHistoryEntry"), "The entries.")
            .fails(404, "This agent accepts no reports.")
            .stores(),
        read("/api/v1/objects", get(objects::objects), "All objects in the form of Kubernetes")
            .query("kind", Query::Text, "Kinds, with commas. Default: all")
            .query("namespace", Query::Text, "Only objects in this namespace")
            .query("name", Query::Text, "Only objects of this name")
            .query("app", Query::Text, "Only objects of this application")
            .query("labelSelector", Query::Text, "Labels, as in Kubernetes")
            .answers(200, One("ObjectList"), "The objects."),
        read("/api/v1/events", get(events::events), "The event log, oldest first")
            .query("after", Query::Number, "Only events with a higher sequence. Default: the newest")
            .query("limit", Query::Number, "Number of events, at most 1000. Default: 100")
            .query("app", Query::Text, "Only events of this application")
            .answers(200, List("Event"), "The events.")
            .stores(),
        read("/api/v1/repositories", get(api::repositories), "The repositories that the agent follows")
            .answers(200, List("RepositoryStatus"), "The repositories."),
        read("/api/v1/webhooks", get(api::webhooks), "The webhooks with their last deliveries")
            .answers(200, List("WebhookStatus"), "The webhooks.")
            .stores(),
        read("/api/v1/notifications", get(notifications::list), "Receivers and open incidents")
            .answers(200, One("NotificationStatus"), "The receivers and incidents.")
            .stores(),
    ]
}

fn questions_about_applications() -> Vec<Operation> {
    let read = |path, handler, summary| Operation::new("get", path, handler, summary, Needs::Read);
    vec![
        read("/api/v1/applications", get(api::list), "All applications, by name")
            .query("view", Query::Word(vec!["full", "summary"]), "summary: without workloads. Default: full")
            .answers(200, List("Application"), "The applications."),
        read("/api/v1/applications/{name}", get(api::one), "One application").answers(
            200,
            One("Application"),
            "The application.",
        ),
        read("/api/v1/applications/{name}/wait", get(wait::wait), "Wait for a state or a change")
            .query(
                "for",
                Query::Text,
                "States that must all be reached, with commas. Default: synced,healthy",
            )
            .query("ticket", Query::Text, "Count only a status that answers this request")
            .query(
                "seen",
                Query::Text,
                "The version of the last answer; a status that differs is answered at once",
            )
            .query("within", Query::Text, "The longest time, at most 60s. Default: 30s")
            .answers(200, One("Waited"), "The state is reached, or the time is over."),
        read("/api/v1/applications/{name}/revisions", get(api::revisions), "The revisions, newest first")
            .answers(200, List("Revision"), "The revisions.")
            .stores(),
        read("/api/v1/applications/{name}/plan", get(api::plan), "What the agent would do now")
            .query("after", Query::Word(vec!["prune", "rollback"]), "Suppose that this request was accepted")
            .query("to", Query::Text, "The revision or commit of the rollback")
            .answers(200, One("DryRun"), "The dry run.")
            .asks(),
        read("/api/v1/applications/{name}/drift", get(api::drift), "What differs from Git, field by field")
            .query("against", Query::Text, "pin, head, the number of a revision, or a commit. Default: pin")
            .answers(200, One("Inspection"), "The differences.")
            .asks(),
        read("/api/v1/applications/{name}/settings", get(api::settings), "The settings in force")
            .answers(200, List("EffectiveSetting"), "The settings, by key.")
            .asks(),
        Operation::new(
            "get",
            "/api/v1/applications/{name}/instances/{instance}/logs",
            get(workloads::logs),
            "The output of an instance",
            Needs::Logs,
        )
        .query("follow", Query::Boolean, "Continue with new output")
        .query("tail", Query::Number, "Number of last lines. Default: all")
        .query("since", Query::Text, "Only output after this time, or within this duration")
        .query("timestamps", Query::Boolean, "A timestamp before each line")
        .query("previous", Query::Boolean, "The output of runs before the current one")
        .query("container", Query::Text, "A container of a pod with several. Default: the first")
        .query("namespace", Query::Text, NAMESPACE)
        .answers(200, Text, "The output.")
        .asks(),
    ]
}

fn requests() -> Vec<Operation> {
    let ask = |path, handler, summary, word| {
        Operation::new("post", path, handler, summary, Needs::Act).audited(word)
    };
    vec![
        ask("/api/v1/applications/{name}/sync", post(api::sync), "Fetch and observe now", "sync").accepts(),
        Operation::new(
            "post",
            "/api/v1/repositories/{name}/fetch",
            post(api::fetch),
            "Fetch a repository now",
            Needs::Fetch,
        )
        .audited("fetch")
        .accepts(),
        ask(
            "/api/v1/applications/{name}/accept-rewrite",
            post(api::accept_rewrite),
            "Accept rewritten history",
            "accept rewrite",
        )
        .accepts(),
        ask(
            "/api/v1/applications/{name}/rollback",
            post(api::rollback),
            "Go back to a revision and stay there",
            "rollback",
        )
        .body("RollbackBody", false)
        .accepts(),
        ask("/api/v1/applications/{name}/resume", post(api::resume), "End a pin or a suspension", "resume")
            .accepts(),
        ask(
            "/api/v1/applications/{name}/suspend",
            post(api::suspend),
            "Observe and report, change nothing",
            "suspend",
        )
        .accepts(),
        ask("/api/v1/applications/{name}/prune", post(api::prune), "Confirm a prune that is held", "prune")
            .accepts(),
        ask("/api/v1/applications/{name}/retry", post(api::retry), "Try a failed commit again", "retry")
            .accepts(),
        ask("/api/v1/applications/{name}/heal", post(api::heal), "Undo drift once", "heal").accepts(),
        ask(
            "/api/v1/applications/{name}/update-images",
            post(api::update_images),
            "Deploy the newer images that are known",
            "update images",
        )
        .accepts(),
        ask(
            "/api/v1/applications/{name}/remove",
            post(api::remove),
            "Remove an application that left Git",
            "remove",
        )
        .query("volumes", Query::Boolean, "Also its volumes. Default: false")
        .query("force", Query::Boolean, "Skip its hooks. Default: false")
        .accepts(),
        ask(
            "/api/v1/applications/{name}/forget",
            post(api::forget),
            "Stop managing an application that left Git",
            "forget",
        )
        .accepts(),
        ask(
            "/api/v1/applications/{name}/adopt",
            post(api::adopt),
            "Adopt objects of Docker Compose",
            "adopt",
        )
        .accepts(),
    ]
}

/// Requests about one workload or instance.
fn requests_about_workloads() -> Vec<Operation> {
    let ask = |path, handler, summary, word| {
        Operation::new("post", path, handler, summary, Needs::Act).audited(word)
    };
    vec![
        ask(
            "/api/v1/applications/{name}/workloads/{workload}/restart",
            post(workloads::restart),
            "Replace every instance of a workload",
            "restart",
        )
        .accepts(),
        ask(
            "/api/v1/applications/{name}/workloads/{workload}/scale",
            post(workloads::scale),
            "Run another number of instances for a time",
            "scale",
        )
        .body("ScaleBody", true)
        .accepts(),
        ask(
            "/api/v1/applications/{name}/workloads/{workload}/reset-scale",
            post(workloads::reset_scale),
            "Run the number of instances in Git again",
            "reset scale",
        )
        .accepts(),
        ask(
            "/api/v1/applications/{name}/workloads/{workload}/jobs/{job}",
            post(workloads::create_job),
            "Start a Job from a CronJob",
            "create job",
        )
        .accepts(),
        ask(
            "/api/v1/applications/{name}/workloads/{workload}/delete",
            post(workloads::delete_job),
            "Delete a Job with its containers",
            "delete job",
        )
        .accepts(),
        ask(
            "/api/v1/applications/{name}/workloads/{workload}/pause",
            post(workloads::pause),
            "Pause the rollouts of a Deployment",
            "pause rollout",
        )
        .accepts(),
        ask(
            "/api/v1/applications/{name}/workloads/{workload}/resume",
            post(workloads::resume),
            "Resume the rollouts of a Deployment",
            "resume rollout",
        )
        .accepts(),
        ask(
            "/api/v1/applications/{name}/instances/{instance}/delete",
            post(workloads::delete),
            "Replace one instance",
            "delete",
        )
        .query("namespace", Query::Text, NAMESPACE)
        .accepts(),
    ]
}

/// The test of a receiver of notifications.
fn sample_message() -> Operation {
    Operation::new(
        "post",
        "/api/v1/notifications/{name}/test",
        post(notifications::test),
        "Send a sample message to a receiver",
        Needs::Admin,
    )
    .audited("test")
    .query(
        "event",
        Query::Word(IncidentKind::ALL.iter().map(|(name, _)| *name).collect()),
        "The incident. Default: degraded",
    )
    .query("phase", Query::Word(vec!["opened", "updated", "recovered"]), "Its phase. Default: opened")
    .query("preview", Query::Boolean, "Write the message and send nothing")
    .answers(200, One("TestMessage"), "The message.")
    .asks()
}

/// Requests about canaries.
fn requests_about_canaries() -> Vec<Operation> {
    let ask = |path, handler, summary, word| {
        Operation::new("post", path, handler, summary, Needs::Act).audited(word)
    };
    vec![
        ask(
            "/api/v1/applications/{name}/promote",
            post(api::promote),
            "End the pause of a canary",
            "promote",
        )
        .query("workload", Query::Text, "Only the canary of this workload")
        .query("full", Query::Boolean, "Skip all further steps. Default: false")
        .accepts(),
        ask("/api/v1/applications/{name}/abort", post(api::abort), "Go back from a canary", "abort")
            .accepts(),
    ]
}

fn administration() -> Vec<Operation> {
    vec![
        Operation::new(
            "post",
            "/api/v1/recover",
            post(api::recover),
            "Confirm that state was lost",
            Needs::Admin,
        )
        .audited("recover")
        .accepts(),
        Operation::new(
            "post",
            "/api/v1/release",
            post(api::release),
            "Stop managing everything",
            Needs::Admin,
        )
        .audited("release")
        .query("undo", Query::Boolean, "Manage again what Git says. Default: false")
        .accepts(),
        Operation::new(
            "post",
            "/api/v1/images/clean-up",
            post(images::clean_up),
            "Remove images that nothing needs",
            Needs::Admin,
        )
        .audited("clean up")
        .answers(200, One("ImageCleanup"), "The removed images.")
        .fails(502, "The engine did not answer."),
        Operation::new(
            "get",
            "/api/v1/tokens",
            get(access_routes::list_tokens),
            "The named tokens",
            Needs::Admin,
        )
        .answers(200, List("ApiToken"), "The tokens, without their secrets.")
        .stores(),
        Operation::new(
            "post",
            "/api/v1/tokens",
            post(access_routes::create_token),
            "Create a token",
            Needs::Admin,
        )
        .audited("create token")
        .body("TokenBody", true)
        .answers(201, One("CreatedToken"), "The token with its secret, this once.")
        .fails(409, "The name is taken, or there are too many tokens.")
        .stores(),
        Operation::new(
            "delete",
            "/api/v1/tokens/{token}",
            delete(access_routes::revoke_token),
            "Revoke a token",
            Needs::Admin,
        )
        .audited("revoke token")
        .answers(204, Nothing, "It is refused from now on.")
        .stores(),
        Operation::new(
            "get",
            "/api/v1/audit",
            get(access_routes::audit),
            "Who asked for what, newest first",
            Needs::Admin,
        )
        .query("before", Query::Number, "Only entries with a lower sequence. Default: the newest")
        .query("limit", Query::Number, "Number of entries, at most 1000. Default: 100")
        .query("app", Query::Text, "Only entries about this application")
        .answers(200, List("AuditEntry"), "The entries.")
        .stores(),
    ]
}

/// Reports of hosts, and their keys.
fn fleet_administration() -> Vec<Operation> {
    vec![
        Operation::new(
            "put",
            "/api/v1/fleet/hosts/{name}",
            put(fleet::report),
            "Report the state of a host",
            Needs::Report,
        )
        .audited(REPORT)
        .body("HostReport", false)
        .answers(200, One("ReportAnswer"), "It is taken, and there are requests for the host, signed.")
        .answers(204, Nothing, "The report is stored.")
        .answers(304, Nothing, "The collector has this report already.")
        .fails(409, "Another machine has the name, or the counter of a signed request is not new.")
        .fails(428, "The collector does not have the report that the heartbeat names.")
        .fails(507, "There are too many hosts, or their reports are too large together.")
        .stores(),
        Operation::new(
            "delete",
            "/api/v1/fleet/hosts/{name}",
            delete(fleet::remove),
            "Forget a host",
            Needs::Admin,
        )
        .audited("remove host")
        .answers(204, Nothing, "It is forgotten until it reports again.")
        .fails(409, "A configuration names the host, which has not reported.")
        .stores(),
        Operation::new(
            "get",
            "/api/v1/fleet/keys",
            get(fleet_keys::list),
            "The enrolled hosts and open invites",
            Needs::Read,
        )
        .answers(200, One("FleetKeys"), "The hosts with the fingerprints of their keys.")
        .fails(404, "This agent accepts no reports.")
        .stores(),
        Operation::new(
            "delete",
            "/api/v1/fleet/keys/{name}",
            delete(fleet_keys::revoke),
            "Revoke the key of a host, as the host itself may",
            Needs::Key,
        )
        .audited("revoke key")
        .answers(204, Nothing, "Its requests are refused from now on.")
        .stores(),
        Operation::new(
            "post",
            "/api/v1/fleet/invites",
            post(fleet_keys::invite),
            "Invite a host",
            Needs::Admin,
        )
        .audited("invite host")
        .body("InviteBody", false)
        .answers(201, One("CreatedInvite"), "The one-time token, this once.")
        .fails(404, "This agent accepts no reports.")
        .fails(409, "The host is enrolled already, or there are too many invites.")
        .stores(),
        Operation::new(
            "delete",
            "/api/v1/fleet/invites/{id}",
            delete(fleet_keys::withdraw),
            "Withdraw an open invite",
            Needs::Admin,
        )
        .audited("withdraw invite")
        .answers(204, Nothing, "Nobody can use it any more.")
        .stores(),
    ]
}

/// To join a collector and to leave it, and its requests to hosts.
fn fleet_membership() -> Vec<Operation> {
    vec![
        Operation::new(
            "post",
            "/api/v1/fleet/enrolments",
            post(fleet_keys::enrol),
            "Join a collector",
            Needs::Admin,
        )
        .audited("join fleet")
        .body("EnrolmentBody", true)
        .answers(201, One("Joined"), "Requests to the collector are signed from now on.")
        .fails(409, "This agent does not report to this URL, or has no name.")
        .fails(502, "The collector did not answer, or refused.")
        .stores(),
        Operation::new(
            "delete",
            "/api/v1/fleet/enrolments",
            delete(fleet_keys::leave),
            "Leave a collector",
            Needs::Admin,
        )
        .audited("leave fleet")
        .query("url", Query::Text, "The URL of the collector. Required")
        .query("force", Query::Boolean, "Forget its key also if it does not remove that of this host")
        .answers(200, One("LeftCollector"), "Requests to the collector are not signed any more.")
        .fails(409, "This agent has not joined it.")
        .fails(502, "The collector did not answer, or refused.")
        .stores(),
        Operation::new(
            "post",
            "/api/v1/fleet/hosts/{name}/requests",
            post(fleet_requests::create),
            "Ask an enrolled host to do something",
            Needs::Admin,
        )
        .audited("request host")
        .body("FleetRequestBody", true)
        .answers(201, One("FleetRequest"), "The request waits for the next report of the host.")
        .fails(409, "The host is not enrolled, or has too many requests.")
        .stores(),
        Operation::new(
            "get",
            "/api/v1/fleet/requests",
            get(fleet_requests::list),
            "The requests to hosts, newest first",
            Needs::Read,
        )
        .query("host", Query::Text, "Only this host")
        .query("limit", Query::Number, "Number of requests, at most 1000. Default: 100")
        .answers(200, List("FleetRequest"), "The requests with their results.")
        .fails(404, "This agent accepts no reports.")
        .stores(),
        Operation::new(
            "delete",
            "/api/v1/fleet/requests/{id}",
            delete(fleet_requests::cancel),
            "Cancel a request to a host",
            Needs::Admin,
        )
        .audited("cancel request")
        .answers(204, Nothing, "It is not sent any more.")
        .stores(),
    ]
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use http::Method;

    use super::*;
    use crate::{
        access::{Needed, RouteRules, audit::action},
        guarded_route::rules,
        route::path_names,
    };

    /// A route with the permission that it needs, and with its word in the audit if it changes something.
    fn row(rules: &RouteRules, method: &str, route: &str) -> String {
        let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        let rule = rules.rule(&method, route);
        let permission = match rule.needed(route, route) {
            Needed::Read => "read".to_owned(),
            Needed::Logs => "logs".to_owned(),
            Needed::Act(app) => format!("act on {app}"),
            Needed::Fetch(repository) => format!("fetch {repository}"),
            Needed::Report(host) => format!("report {host}"),
            Needed::Key(host) => format!("key of {host}"),
            Needed::Peers => "peers".to_owned(),
            Needed::Admin => "admin".to_owned(),
        };
        assert_eq!(method == Method::GET, rule.audit_word.is_empty(), "{method} {route}: call `audited`");
        let audited = action(rule.audit_word, &path_names(route, route));
        let row = format!("{:<6} {route:<64} {permission:<14} {audited}", method.as_str());
        row.trim_end().to_owned() + "\n"
    }

    #[test]
    fn permissions_and_audit_words_are_those_of_the_table() {
        let routes = guarded();
        let rules = rules(&routes);
        let made: String = routes.iter().map(|route| row(&rules, route.method, route.path)).collect();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("access.txt");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&file, &made).unwrap();
        }
        let table = fs::read_to_string(&file).unwrap();
        assert!(
            made == table,
            "crates/web/access.txt is out of date: UPDATE_DOCS=1 cargo test -p driftless-web routes::\n{made}"
        );
    }

    #[test]
    fn routes_without_a_rule_need_admin() {
        let rules = rules(&guarded());
        let needed = |method, route| rules.rule(&method, route).needed(route, route);
        assert_eq!(needed(Method::GET, "/api/v1/secrets"), Needed::Admin);
        assert_eq!(needed(Method::DELETE, "/api/v1/agent"), Needed::Read, "it has no such method");
        assert_eq!(needed(Method::HEAD, "/api/v1/agent"), Needed::Read, "as for GET");
        assert_eq!(needed(Method::GET, ""), Needed::Read, "nothing is there");
    }
}
