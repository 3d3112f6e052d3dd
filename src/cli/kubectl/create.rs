//! `driftless create job`: starts a run of a CronJob at once. Other objects are created in Git.

use super::{
    args::{CreateCommand, CreateJobArgs},
    objects::{Error, Wanted},
    target::Target,
};
use crate::{cli::Context, cli::Error as CliError, cli::ExitStatus, cli::client::Client, cli::output::print};
use driftless_model::Kind;
use driftless_web::Accepted;

pub(in crate::cli) async fn create(
    command: &CreateCommand,
    context: &Context<'_>,
) -> Result<ExitStatus, CliError> {
    let CreateCommand::Job(CreateJobArgs { name, from, scope, server }) = command;
    let wanted = Wanted::pair(from)?;
    if wanted.kinds != [Kind::CronJob] {
        let text = format!("`{from}` is not a CronJob: write --from=cronjob/NAME");
        return Err(Error::Usage(text).into());
    }
    let client = Client::new(server, context.environment)?;
    let Some(target) = Target::find(&wanted, scope, &client, context).await? else {
        return Ok(ExitStatus::Negative);
    };
    let route = target.route(&format!("/workloads/{}/jobs/{name}", target.workload))?;
    let _: Accepted = client.post(&route, None::<&()>).await?;
    print(&format!("job.batch/{name} created\n"))?;
    Ok(ExitStatus::Success)
}
