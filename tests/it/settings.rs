//! Settings of one application in the agent's configuration: an error among them stops that application.

use std::collections::BTreeMap;

use driftless_clock::Clock;
use driftless_config as config;
use driftless_model::{AppName, SyncStatus};

use crate::sample::NOON;
use crate::simulation::{Simulation, minutes};

const COMPOSE: &str = "services: {web: {image: 'web:1', environment: ['GREETING=${GREETING}']}}";

#[tokio::test(start_paused = true)]
async fn application_with_an_error_in_its_settings_is_not_applied() {
    for setting in ["envFiles: [/etc/shop.env]", "envFiles: [../../shop.env]", "files: [../../x.yaml]"] {
        let text = format!(
            "repositories: [{{url: /srv/a, applications: [{{path: shop, {setting}}}, {{path: blog}}]}}]\n"
        );
        let mut it = Simulation::prepared(COMPOSE, Clock::starting_at(NOON));
        it.settings = config::Settings::parse("driftless.yaml", &text).unwrap().repositories.remove(0);
        it.git.push_files("Ada", &[("shop/compose.yaml", COMPOSE), ("blog/compose.yaml", COMPOSE)]);
        it.begin();
        minutes(5).await;
        let applications = it.handle().applications();
        let running: BTreeMap<&AppName, usize> =
            applications.keys().map(|app| (app, it.docker.observed(app).instances.len())).collect();
        assert_eq!(running, BTreeMap::from([(&"blog".into(), 1), (&"shop".into(), 0)]), "{setting}");
        let status = &applications[&AppName::from("shop")].status;
        assert!(status.message.contains("outside of the repository"), "{setting}: {status:#?}");
        assert_eq!(status.sync, SyncStatus::Unknown);
    }
}
