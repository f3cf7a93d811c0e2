// Sends requests as the lines of its input say, and answers each with a line: its id, and the error
// that the caller got, if any.
import readline from 'node:readline'
import axios from 'axios'
import axiosRetry from 'axios-retry'
import got from 'got'
import ky from 'ky'
import OpenAI from 'openai'
import { Agent, RetryAgent, request } from 'undici'

const ok = (status) => { if (status !== 200) throw new Error(`refused: ${status}`) }

const clients = {
  async fetch ({ method, url, body }) {
    ok((await fetch(url, { method, body })).status)
  },
  async got ({ method, url, body }) {
    await got(url, { method, body })
  },
  async ky ({ method, url, body }) {
    await ky(url, { method, body, timeout: false })
  },
  async 'axios-retry' ({ method, url, body }) {
    const client = axios.create()
    axiosRetry(client, { retries: 3 })
    await client.request({ url, method, data: body })
  },
  async undici ({ method, url, body }) {
    const res = await request(url, { method, body, dispatcher: new RetryAgent(new Agent()) })
    await res.body.dump()
    ok(res.statusCode)
  },
  async openai ({ url, body }) {
    await new OpenAI({ apiKey: 'lab', baseURL: url }).chat.completions.create({
      model: 'm', messages: [{ role: 'user', content: body ?? '' }]
    })
  }
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { id, client, method, url, size } = JSON.parse(line)
  const body = size > 0 ? '7'.repeat(size) : undefined
  clients[client]({ method, url, body })
    .then(() => ({ id, error: '' }), (err) => ({ id, error: String(err) || 'error' }))
    .then((answer) => console.log(JSON.stringify(answer)))
}
