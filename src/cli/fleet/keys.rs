//! `driftless fleet keys`: the enrolled hosts and the open invites of a collector.

use std::fmt::Write as _;

use clap::Args;

use driftless_model::Timestamp;
use driftless_web::{EnrolledHost, FleetKeys, OpenInvite};

use crate::cli::{
    client::Client,
    context::{Context, ExitStatus},
    error::Error,
    options::{Output, ServerArgs},
    output::{json, print, yaml},
    screen::{Colours, Paint, plain},
    span::span,
    table::{Cell, Table},
};

/// List the enrolled hosts with the fingerprints of their keys, and the invites that nobody has used yet.
#[derive(Debug, Args)]
pub(in crate::cli) struct FleetKeysArgs {
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn keys(args: &FleetKeysArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let keys: FleetKeys = client.get("/api/v1/fleet/keys").await?;
    print(&match args.output {
        Output::Json => json(&keys),
        Output::Yaml => yaml(&keys),
        Output::Table => context.fold(&text(&keys, context.columns(), context.clock.now(), context.colours)),
        Output::Wide => text(&keys, None, context.clock.now(), context.colours),
    })?;
    Ok(ExitStatus::Success)
}

fn text(keys: &FleetKeys, width: Option<usize>, now: Timestamp, colours: Colours) -> String {
    let FleetKeys { own, hosts, invites } = keys;
    let mut text = String::new();
    if hosts.is_empty() {
        text.push_str("no host is enrolled; `driftless fleet invite` makes a token for one\n");
    } else {
        let mut table = Table::new(0, &["HOST", "ENROLLED", "HEARD", "BY", "FINGERPRINT"]);
        for EnrolledHost { host, fingerprint, enrolled, invited_by, heard } in hosts {
            table.row([
                Cell::painted(Paint::Strong, plain(host)),
                span(now.since(*enrolled)).into(),
                heard.map_or_else(|| "never".to_owned(), |at| span(now.since(at))).into(),
                plain(&invited_by.to_string()).into(),
                plain(fingerprint).into(),
            ]);
        }
        if let Some(width) = width {
            table.fold(width);
        }
        text.push_str(&table.render(colours));
    }
    for OpenInvite { id, host, invited_by, expires } in invites {
        let host = host.as_deref().map_or_else(|| "any host".to_owned(), plain);
        let (by, left) = (plain(&invited_by.to_string()), span(expires.since(now)));
        let id = if id.is_empty() { String::new() } else { format!(" (id {})", plain(id)) };
        let _ = writeln!(text, "open invite for {host} by {by}, for another {left}{id}");
    }
    let _ = writeln!(text, "key of this collector: {}", plain(own));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Actor, ActorKind};

    #[test]
    fn hosts_and_open_invites_are_listed() {
        let now = Timestamp(10_000_000);
        let by = Actor::new(ActorKind::LocalUser, "root");
        let host = EnrolledHost {
            host: "nas".to_owned(),
            fingerprint: "SHA256:abc".to_owned(),
            enrolled: Timestamp(now.0 - 60_000),
            invited_by: by.clone(),
            heard: None,
        };
        let invite = OpenInvite {
            id: "0a1b2c3d4e5f".to_owned(),
            host: None,
            invited_by: by,
            expires: Timestamp(now.0 + 3_600_000),
        };
        let mut keys = FleetKeys { own: "SHA256:own".to_owned(), hosts: vec![host], invites: vec![invite] };
        let lines: Vec<String> = text(&keys, None, now, Colours::Off).lines().map(str::to_owned).collect();
        assert_eq!(
            lines,
            [
                "HOST  ENROLLED  HEARD  BY               FINGERPRINT",
                "nas   60s       never  local user root  SHA256:abc",
                "open invite for any host by local user root, for another 60m (id 0a1b2c3d4e5f)",
                "key of this collector: SHA256:own",
            ]
        );
        // An older release lists no ids.
        let mut older = serde_json::to_value(&keys.invites[0]).unwrap();
        older.as_object_mut().unwrap().remove("id");
        keys.invites = vec![serde_json::from_value(older).unwrap()];
        let text_of_older = text(&keys, None, now, Colours::Off);
        let line = "open invite for any host by local user root, for another 60m\n";
        assert!(text_of_older.contains(line), "{text_of_older}");
        keys.hosts.clear();
        assert!(text(&keys, None, now, Colours::Off).starts_with("no host is enrolled"));
    }
}
