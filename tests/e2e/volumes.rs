//! Volumes: owner and mode in Kubernetes pods, and lifetime of those without a name.

use crate::harness::{Container, Docker, Site, images, manifests};

fn all(site: &Site, image: &str) -> String {
    let host = site.directory().display().to_string();
    let sees = |paths: &str| {
        format!("for it in {paths}; do touch $it/file && stat -c '%n %a %u:%g' $it $it/file; done")
    };
    let pod = |name: &str, security: &str, script: &str| {
        format!(
            "---
{}      terminationGracePeriodSeconds: 0
      securityContext: {{runAsUser: 1000, runAsGroup: 1000{security}}}
      containers:
        - name: {name}
          image: \"{image}\"
          command: [/bin/busybox, sh, -c, \"exec 2>&1; {script}; echo done; exec sleep 100000\"]
          securityContext: {{readOnlyRootFilesystem: true}}
          env: [{{name: POD, value: one}}]
          volumeMounts:
            - {{name: empty, mountPath: /empty/deep}}
            - {{name: parts, mountPath: /part, subPathExpr: $(POD)/a}}
            - {{name: parts, mountPath: /other, subPath: b}}
            - {{name: memory, mountPath: /memory}}
",
            manifests::deployment(name)
        )
    };
    let grouped = "            - {name: claim, mountPath: /claim}
            - {name: words, mountPath: /words}
            - {name: made, mountPath: /made}
            - {name: there, mountPath: /there}
            - {name: file, mountPath: /file.txt}
            - {name: socket, mountPath: /docker.sock, readOnly: true}
            - {name: zero, mountPath: /dev/other-zero}
";
    let volumes = "      volumes:
        - {name: empty, emptyDir: {}}
        - {name: parts, emptyDir: {}}
        - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
";
    let further = format!(
        "        - {{name: claim, persistentVolumeClaim: {{claimName: claim}}}}
        - {{name: words, configMap: {{name: words, defaultMode: 0555, items: [{{key: a, path: run/me}}]}}}}
        - {{name: made, hostPath: {{path: {host}/made/here, type: DirectoryOrCreate}}}}
        - {{name: there, hostPath: {{path: {host}, type: Directory}}}}
        - {{name: file, hostPath: {{path: {host}/file.txt, type: File}}}}
        - {{name: socket, hostPath: {{path: /var/run/docker.sock, type: Socket}}}}
        - {{name: zero, hostPath: {{path: /dev/zero, type: CharDevice}}}}
"
    );
    let plain_sees = format!(
        "{}; dd if=/dev/zero of=/memory/big bs=64k count=100; ls -s /memory/big",
        sees("/empty/deep /part /other /memory")
    );
    let grouped_sees = format!(
        "{}; /words/run/me; cat /file.txt; test -d /made && test -d /there && test -S /docker.sock && head -c 3 /dev/other-zero | wc -c",
        sees("/empty/deep /memory /claim")
    );
    let data = "---
apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {a: \"#!/bin/sh\\necho executed\\n\"}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim}
spec: {}
";
    [
        data,
        &pod("plain", "", &plain_sees),
        volumes,
        &pod("grouped", ", fsGroup: 3000", &grouped_sees),
        grouped,
        volumes,
        &further,
    ]
    .concat()
}

#[tokio::test]
async fn empty_dir_is_writable_and_fs_group_is_applied() {
    let site = Site::new("volumes");
    let image = images::placeholder();
    std::fs::write(site.directory().join("file.txt"), "hello\n").unwrap();
    // A claim that somebody else owns.
    let volume = format!("{}_claim", site.app);
    let labels = ["--label", &format!("driftless.application={}", site.app)];
    site.docker.run(&[&["volume", "create"][..], &labels, &[&volume]].concat());
    let mount = format!("{volume}:/v");
    let script = "/bin/busybox chown 999 /v; /bin/busybox chmod 700 /v";
    site.docker.run(&[
        "run",
        "--rm",
        "-v",
        &mount,
        "--entrypoint",
        "/bin/busybox",
        &image,
        "sh",
        "-c",
        script,
    ]);

    let commit = site.repository.commit(&[(&site.path("all.yaml"), &all(&site, &image))]);
    let mut agent = site.agent().await;
    agent.settled(&commit).await;

    let plain = site.container("plain");
    let said = site
        .until("it has looked at everything", |docker| {
            docker.attempt(&["logs", &plain.id()]).ok().filter(|it| it.contains("done"))
        })
        .await;
    for place in [
        "/empty/deep 777 0:0",
        "/empty/deep/file 644 1000:1000",
        "/part 777 0:0",
        "/other 777 0:0",
        "/memory 1777 0:0",
    ] {
        assert!(said.lines().any(|it| it == place), "{place}: {said}");
    }
    assert!(
        said.contains("No space left on device") && said.contains("1024"),
        "the limit of memory holds: {said}"
    );

    let grouped = site.container("grouped");
    let said = site
        .until("it has looked at everything", |docker| {
            docker.attempt(&["logs", &grouped.id()]).ok().filter(|it| it.contains("done"))
        })
        .await;
    for place in [
        "/empty/deep 2777 0:3000",
        "/empty/deep/file 644 1000:3000",
        "/memory 3777 0:3000",
        "/claim 2770 999:3000",
        "/claim/file 644 1000:3000",
        "executed",
        "hello",
        "3",
    ] {
        assert!(said.lines().any(|it| it == place), "{place}: {said}");
    }

    // As long as the container lasts, so does what lies there; and nothing of it is taken for a stranger's work.
    site.docker.run(&["restart", "-t", "0", &plain.id()]);
    site.until("it runs again", |docker| docker.container(&plain.id()).filter(|it| it.state() == "running"))
        .await;
    let look = ["exec", &plain.id(), "/bin/busybox", "test", "-f", "/empty/deep/file"];
    site.until("what lay there lies there", |docker| docker.attempt(&look).ok()).await;
    // A volume in memory is not kept, and every user may write there again.
    let look = ["exec", "--user", "2000", &plain.id(), "/bin/busybox", "touch", "/memory/again"];
    site.until("all may write into the memory", |docker| docker.attempt(&look).ok()).await;

    // A volume of a container that was removed before a kill goes, and no other.
    agent.kill9();
    let digits: String = site.app.bytes().map(|byte| format!("{byte:02x}")).collect();
    let left = format!("{digits:f<64.64}");
    let label = format!("driftless.empty={}", plain.label("driftless.agent"));
    site.docker.run(&[&["volume", "create", "--label", &label][..], &labels, &[&left]].concat());
    agent.launch();
    let is_gone = |docker: &Docker| docker.attempt(&["volume", "inspect", &left]).is_err().then_some(());
    site.until("the volume is removed", is_gone).await;
    let look = ["exec", &plain.id(), "/bin/busybox", "test", "-f", "/empty/deep/file"];
    site.docker.run(&look);

    let application = agent.settled(&commit).await;
    assert_eq!(site.container("plain").id(), plain.id());
    assert!(application.status.findings.iter().all(|it| !it.is_error()), "{:?}", application.status.findings);
}

#[tokio::test]
async fn anonymous_volume_ends_with_its_place_in_git() {
    let site = Site::new("volumeends");
    let image = images::server("1.0");
    let text = |volumes: &str| {
        format!(
            "services:\n  web:\n    image: {image}\n    stop_grace_period: 1s\n    volumes: [{volumes}]\n"
        )
    };
    let agent = site.running(&text("/srv, /kept")).await;
    let before = volumes_of(&site.container("web"));
    assert_eq!(before.len(), 2);
    let commit = site.compose(&text("/kept"));
    agent.sync().await;
    agent.settled(&commit).await;
    let web = site.container("web");
    let after = volumes_of(&web);
    assert!(after.len() == 1 && before.contains(&after[0]), "{before:?} and {after:?}");
    assert_eq!(web.0["Mounts"][0]["Destination"], "/kept");
    let said = agent.said(&format!("diff {}", site.app));
    assert!(!said.contains("/srv"), "{said}");
}

/// The names of the volumes that a container mounts.
fn volumes_of(container: &Container) -> Vec<String> {
    let mounts = container.0["Mounts"].as_array().unwrap();
    let volumes = mounts.iter().filter(|mount| mount["Type"] == "volume");
    volumes.map(|mount| mount["Name"].as_str().unwrap().to_owned()).collect()
}
