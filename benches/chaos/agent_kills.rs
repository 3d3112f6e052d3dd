//! `kill -9` of the agent at any moment, several times in one rollout.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{
    Context,
    apps::Kind,
    docker::Docker,
    lane::{Allowed, Lane, Ways},
    random::Random,
    table::Row,
};

const KINDS: [Kind; 5] = [Kind::Roll, Kind::Kube, Kind::Still, Kind::Pinned, Kind::Suspended];

pub(crate) async fn run(
    context: &Context,
    docker: &Docker,
    number: usize,
    kills: usize,
) -> Result<(), String> {
    let mut random = Random::of(context.seed, &format!("agent {number}"));
    let mut done = 0;
    let mut attempt = 0;
    'lanes: while done < kills && !context.is_over() {
        attempt += 1;
        let name = format!("a{number}x{attempt}");
        let mut lane = match Lane::start(&context.directory, &name, docker, &KINDS, |_| Ways::default()).await
        {
            Ok(lane) => lane,
            Err(error) if attempt < 5 => {
                context.table.miss(
                    Some(Row::Agent),
                    &format!("{name}: the first deployment failed: {error}"),
                    "",
                );
                continue;
            }
            Err(error) => return Err(format!("{name}: {error}")),
        };
        while done < kills && !context.is_over() {
            let count = usize::try_from(random.between(2, 6)).unwrap_or(2).min(kills - done);
            let result = rollout(context, &mut lane, &mut random, count).await;
            context.table.record(Row::Agent, "all", count, &result);
            done += count;
            if let Err(error) = result {
                let what =
                    format!("kill -9 of the agent ({name}, kills {}-{done}): {error}", done - count + 1);
                context.table.miss(Some(Row::Agent), &what, &lane.log_tail());
                lane.end().await;
                continue 'lanes;
            }
        }
        lane.end().await;
    }
    Ok(())
}

/// One commit, and so many kills while it is rolled out. Returns the time to heal after the last one.
async fn rollout(
    context: &Context,
    lane: &mut Lane,
    random: &mut Random,
    kills: usize,
) -> Result<Duration, String> {
    let changed = if random.one_in(2) { Kind::Roll } else { Kind::Kube };
    lane.commit(&[changed, Kind::Pinned, Kind::Suspended]);
    lane.sync().await;
    for _ in 0..kills {
        // Half early, while the commit is fetched or the first containers change; half anywhere in the rollout.
        let wait = if random.one_in(2) { random.below(900) } else { random.below(5000) };
        sleep(Duration::from_millis(wait)).await;
        context.table.note(Row::Agent, &lane.phase());
        lane.kill();
        lane.no_twins().await?;
        lane.launch()?;
    }
    let began = Instant::now();
    lane.settle(Allowed::default()).await?;
    Ok(began.elapsed())
}
