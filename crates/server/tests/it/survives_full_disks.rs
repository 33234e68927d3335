//! Snapshots on a full disk: refused as such, and nothing half-done is left. What a full disk does to the rest is tested
//! with the program.

use lis_server::ServeOptions;
use reqwest::Method;
use sandbox::RemoteRuntime;
use sandbox_testkit::Operation;
use serde_json::{Value, json};

use crate::support::with_server;

#[test]
fn a_snapshot_that_does_not_fit_leaves_nothing() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let path = format!("/sandboxes/{}/snapshots", sandbox.id);
        let name = format!("kept-{}", sandbox.id);
        let save = async || {
            let request = server.request(Method::POST, &path).json(&json!({ "name": name }));
            let answer = request.send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        };
        let listed = async || {
            let list = server.request(Method::GET, "/snapshots").send().await.unwrap();
            list.json::<Value>().await.unwrap().as_array().unwrap().len()
        };
        server.runtime.faults.set_disk_full(Operation::Snapshot, true);
        let (status, text) = save().await;
        assert_eq!(status, 507, "{text}");
        assert_eq!(listed().await, 0);
        assert!(!server.runtime.has_image(&name).await.unwrap());
        server.runtime.faults.set_disk_full(Operation::Snapshot, false);
        let (status, text) = save().await;
        if status == 501 {
            return;
        }
        assert_eq!((status, listed().await), (201, 1), "{text}");
        // One that is to replace it, and does not fit, leaves it as it is.
        server.runtime.faults.set_disk_full(Operation::Snapshot, true);
        assert_eq!(save().await.0, 507);
        assert_eq!(listed().await, 1);
        let body = json!({ "templateID": name });
        let used = server.request(Method::POST, "/v2/sandboxes").json(&body).send().await;
        assert_eq!(used.unwrap().status(), 201);
    });
}
