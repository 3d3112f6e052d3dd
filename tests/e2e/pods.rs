//! Pods of several containers, and the image that they need beside their own.

use crate::harness::Site;

#[tokio::test]
async fn the_helpers_image_is_made_of_the_agent_itself_and_ends_at_once() {
    let site = Site::new("helper");
    let agent = site
        .running(
            "services: {pause: {image: \"driftless/helper:2\", stop_grace_period: 80s, restart: always}}",
        )
        .await;
    let pause = site.container("pause");
    assert_eq!((pause.state().as_str(), pause.number("/RestartCount")), ("running", 0));
    assert_eq!(pause.text("/Config/Cmd/0"), "pause");
    // Docker would kill it after 80 s, and the code would be 137.
    site.docker.run(&["update", "--restart", "no", &pause.id()]);
    drop(agent);
    site.docker.run(&["stop", &pause.id()]);
    let ended = site.docker.container(&pause.id()).unwrap();
    assert_eq!((ended.state().as_str(), ended.number("/State/ExitCode")), ("exited", 0));
}
