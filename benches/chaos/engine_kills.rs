//! `kill -9` of dockerd, half of them while a container starts.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{
    Context,
    apps::Kind,
    engine::Engine,
    lane::{Allowed, Lane, Ways},
    random::Random,
    table::Row,
};

const KINDS: [Kind; 3] = [Kind::Roll, Kind::Kube, Kind::Pinned];

pub(crate) async fn run(context: &Context, number: usize, kills: usize) -> Result<(), String> {
    let mut random = Random::of(context.seed, &format!("engine {number}"));
    let mut engine = Engine::start(&context.directory, &format!("k{number}"), None).await?;
    let (mut done, mut starting, mut others) = (0, 0, 0);
    let mut attempt = 0;
    'lanes: while (starting * 2 < kills || others * 2 < kills) && !context.is_over() {
        attempt += 1;
        let name = format!("e{number}x{attempt}");
        let docker = engine.docker.clone();
        let mut lane =
            match Lane::start(&context.directory, &name, &docker, &KINDS, |_| Ways::default()).await {
                Ok(lane) => lane,
                Err(error) if attempt < 5 => {
                    context.table.miss(
                        Some(Row::Engine),
                        &format!("{name}: the first deployment failed: {error}"),
                        "",
                    );
                    continue;
                }
                Err(error) => return Err(format!("{name}: {error}")),
            };
        while (starting * 2 < kills || others * 2 < kills) && !context.is_over() {
            let starts = starting * 2 < kills && (others * 2 >= kills || done % 2 == 0);
            let (row, kind, result) = case(&mut engine, &mut lane, &mut random, starts).await;
            context.table.record(row, kind, 1, &result);
            done += 1;
            if row == Row::EngineStarting {
                starting += 1
            } else {
                others += 1
            }
            if let Err(error) = result {
                let what = format!("kill -9 of dockerd, {kind} ({name}, kill {done}): {error}");
                context.table.miss(Some(row), &what, &lane.log_tail());
                lane.end().await;
                continue 'lanes;
            }
        }
        lane.end().await;
    }
    Ok(())
}

async fn case(
    engine: &mut Engine,
    lane: &mut Lane,
    random: &mut Random,
    while_starting: bool,
) -> (Row, &'static str, Result<Duration, String>) {
    let creations = if while_starting { engine.docker.creations().await } else { None };
    let is_at_rest = !while_starting && random.one_in(4);
    if !is_at_rest {
        lane.commit(&[if random.one_in(2) { Kind::Roll } else { Kind::Kube }, Kind::Pinned]);
        lane.sync().await;
    }
    let mut row = Row::Engine;
    let mut kind = if is_at_rest { "at rest" } else { "in a rollout" };
    if let Some(mut creations) = creations {
        let mut ahead = random.below(4);
        // Any of the first four containers of the rollout.
        while creations.next(Duration::from_secs(15)).await {
            row = Row::EngineStarting;
            kind = "dockerd alone";
            if ahead == 0 {
                break;
            }
            ahead -= 1;
        }
        sleep(Duration::from_millis(random.below(350))).await;
    } else if !is_at_rest {
        sleep(Duration::from_millis(random.below(4000))).await;
    }
    engine.kill();
    if random.one_in(4) {
        engine.kill_containerd();
        kind = "dockerd and containerd";
    }
    sleep(Duration::from_millis(random.below(2500))).await;
    let result = async {
        engine.start_dockerd().await?;
        let began = Instant::now();
        lane.no_twins().await?;
        lane.settle(Allowed { drift: false, repeated_runs: true }).await?;
        Ok(began.elapsed())
    };
    (row, kind, result.await)
}
