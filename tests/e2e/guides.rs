//! The commands of the README and of the first guides, run as they are written against a real agent and engine.

use std::fs;

use serde_json::json;

use crate::harness::{Agent, Settings, Site, images};

/// The lines of the first code block below a heading that call the program, without comments.
fn commands(page: &str, heading: &str) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let below = text.split_once(heading).unwrap_or_else(|| panic!("{page} has no {heading}")).1;
    let block = below.split("```").nth(1).unwrap();
    let lines = block.lines().filter_map(|line| line.strip_prefix("driftless "));
    lines.map(|line| line.split(" #").next().unwrap().trim().to_owned()).collect()
}

/// Runs one command in the clone. Returns its output if it failed.
fn failure(site: &Site, agent: &Agent, command: &str) -> Option<String> {
    let folder = format!("sites/{}", site.app);
    let words: Vec<String> = command
        .split_whitespace()
        .map(|word| match word {
            "shop" => site.app.clone(),
            "DIR" => folder.clone(),
            "FILE" => format!("{folder}/compose.yaml"),
            word => word.to_owned(),
        })
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = agent
        .command(&words)
        .env("DRIFTLESS_SERVER", format!("http://{}", agent.address()))
        .current_dir(site.directory().join("work"))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (!output.status.success()).then(|| format!("{command}: {}", String::from_utf8_lossy(&text)))
}

#[tokio::test]
async fn commands_of_the_readme_and_the_first_guides_succeed() {
    let webhook = Some(("github", "0123456789abcdef0123456789abcdef".to_owned()));
    let whole = Some(json!({ "fleet": { "accept": true } }));
    let site = Site::with("guides", Settings { webhook, whole, ..Settings::default() });
    let compose = |greeting: &str| {
        let image = images::placeholder();
        format!(
            "services:\n  web:\n    image: {image}\n    environment: {{GREETING: {greeting}}}\n    stop_grace_period: 1s\n"
        )
    };
    let agent = site.running(&compose("one")).await;
    // The README goes back to the third revision.
    for greeting in ["two", "three", "four"] {
        let commit = site.compose(&compose(greeting));
        agent.deployed(&commit).await;
    }
    let mut all = commands("README.md", "## Commands");
    all.extend(commands("docs/migrate.md", "# Moving to Driftless from another tool"));
    assert!(all.len() > 15, "{all:?}");
    // They do not end, change the whole host, or start a second agent.
    all.retain(|command| {
        !command.contains("--follow") && !command.starts_with("run ") && !command.starts_with("import ")
    });
    let mut failed = Vec::new();
    for command in &all {
        failed.extend(failure(&site, &agent, command));
        // The commands are examples, each for itself: the following ones do not expect a suspended application.
        if command.starts_with("suspend") {
            failed.extend(failure(&site, &agent, "resume shop"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
