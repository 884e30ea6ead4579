// One round with MQTT.js: node round_trip.mjs URL VERSION TOPIC [CAFILE]. Prints what it received as JSON.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const mqtt = createRequire(`${process.cwd()}/`)('mqtt')
const [url, version, topic, cafile] = process.argv.slice(2)
const options = { protocolVersion: Number(version), reconnectPeriod: 0, clean: true }
if (cafile) options.ca = readFileSync(cafile)

const client = await mqtt.connectAsync(url, options)
const messages = []
const all = new Promise((resolve) => {
  client.on('message', (name, payload, packet) => {
    messages.push([name, payload.toString(), packet.qos])
    if (messages.length === 3) resolve()
  })
})
await client.subscribeAsync(`${topic}/#`, { qos: 2 })
for (const qos of [0, 1, 2]) await client.publishAsync(`${topic}/${qos}`, `qos ${qos}`, { qos })
await all
await client.unsubscribeAsync(`${topic}/#`)
await client.endAsync()
console.log(JSON.stringify(messages))
