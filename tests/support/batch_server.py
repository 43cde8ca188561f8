"""An endpoint with OpenAI's addresses for files and batches."""

import json
import time
from email.parser import BytesParser
from urllib.parse import parse_qs, urlsplit

from tests.support.chat_server import ChatServer


class BatchServer(ChatServer):
    """A `ChatServer` that takes batches, too, and answers them when `finish` is called; it counts what it bills.

    ``billed``: the custom ids of all requests of batches that were made. ``expires``, ``refuses_ids``: of the next
    batch, those that get no reply, or status 400.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.files, self.batches, self.billed = {}, {}, []
        self.expires, self.refuses_ids = set(), set()
        self.finishes_at_once = False
        self.loses_reply = False  # to the request that makes the next batch
        self.http.RequestHandlerClass = _handler(self, self.http.RequestHandlerClass)

    def upload(self, content_type, body):
        message = BytesParser().parsebytes(
            b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body
        )
        parts = {
            part.get_param("name", header="content-disposition"): part
            for part in message.get_payload()
        }
        file = f"file-{len(self.files)}"
        self.files[file] = parts["file"].get_payload(decode=True).decode()
        return self.file(file)

    def file(self, id):
        size = len(self.files[id])
        return {
            "id": id,
            "object": "file",
            "bytes": size,
            "created_at": 1,
            "filename": "requests.jsonl",
            "purpose": "batch",
            "status": "processed",
        }

    def create(self, asked):
        lines = self.files[asked["input_file_id"]].splitlines()
        rows = [json.loads(line) for line in lines]
        self.billed += [row["custom_id"] for row in rows]
        batch = {
            "id": f"batch_{len(self.batches)}",
            "object": "batch",
            "endpoint": asked["endpoint"],
            "input_file_id": asked["input_file_id"],
            "completion_window": "24h",
            "status": "in_progress",
            "metadata": asked.get("metadata"),
            "created_at": int(time.time()),
            "request_counts": {"total": len(rows), "completed": 0, "failed": 0},
        }
        self.batches[batch["id"]] = batch
        if self.finishes_at_once:
            self.finish()
        return batch

    def finish(self):
        """Answer every batch that waits."""
        for batch in self.batches.values():
            if batch["status"] != "in_progress":
                continue
            rows = self.files[batch["input_file_id"]].splitlines()
            replies = [self.answer(json.loads(row)) for row in rows]
            said = [reply for reply in replies if reply]
            self.files[f"{batch['id']}-out"] = "\n".join(map(json.dumps, said))
            batch["output_file_id"] = f"{batch['id']}-out"
            batch["status"] = "expired" if self.expires else "completed"
            batch["request_counts"]["completed"] = len(said)
        self.expires, self.refuses_ids = set(), set()

    def answer(self, row):
        id, asked = row["custom_id"], row["body"]
        if id in self.expires:
            return None
        response = {"status_code": 400, "body": {"error": {"message": "no"}}}
        if id not in self.refuses_ids:
            said = self.says(asked) if callable(self.says) else self.says
            said = {"text": said} if isinstance(said, str) else said
            asked["max_tokens"] = asked.get("max_completion_tokens")
            body = self.completion({**asked, "said": said})
            response = {"status_code": 200, "body": body}
        return {"custom_id": id, "response": response, "error": None}


def _handler(owner, chat):
    class Handler(chat):
        def do_POST(self):
            if self.path.endswith("/chat/completions"):
                super().do_POST()
                return
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            if self.path.endswith("/files"):
                self.reply(200, owner.upload(self.headers["Content-Type"], body))
            elif self.path.endswith("/batches"):
                batch = owner.create(json.loads(body))
                if owner.loses_reply:
                    self.close_connection, owner.loses_reply = True, False
                else:
                    self.reply(200, batch)
            else:
                batch = owner.batches[self.path.split("/")[-2]]
                batch["status"] = "cancelled"
                self.reply(200, batch)

        def do_GET(self):
            url = urlsplit(self.path)
            path = url.path.removeprefix("/v1/").split("/")
            if path == ["batches"]:  # the newest first, one on a page
                ids, after = [*owner.batches][::-1], parse_qs(url.query).get("after")
                rest = ids[ids.index(after[0]) + 1 :] if after else ids
                page = [owner.batches[id] for id in rest[:1]]
                more = {"has_more": len(rest) > 1}
                self.reply(200, {"object": "list", "data": page, **more})
            elif path[0] == "batches":
                self.reply(200, owner.batches[path[1]])
            else:
                data = owner.files[path[1]].encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

    return Handler
