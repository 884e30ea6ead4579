{{- define "flockmq.labels" -}}
{{ include "flockmq.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "flockmq.selector" -}}
app.kubernetes.io/name: flockmq-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Of operator, broker, analytics: the whole name of the image. */}}
{{- define "flockmq.image" -}}
{{- index .context.Values.images .part | default (printf "flockmq-%s:%s" .part .context.Chart.AppVersion) | quote }}
{{- end }}

{{/* What the operator may do where MqttClusters are. */}}
{{- define "flockmq.rules" -}}
- apiGroups: [flockmq.io]
  resources: [mqttclusters]
  verbs: [get, list, watch]
- apiGroups: [flockmq.io] # they get a finalizer
  resources: [mqttusers, mqttrebalances]
  verbs: [list, watch, patch]
- apiGroups: [flockmq.io]
  resources: [mqttclusters/status, mqttusers/status, mqttrebalances/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [serviceaccounts, configmaps, services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""] # made once; the certificates of the links are renewed; names of those that change are watched
  resources: [secrets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""] # made and grown; Kubernetes deletes them by their owner
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""] # a core is restarted by deleting its pod; a label says whether the Service leads to one
  resources: [pods]
  verbs: [list, watch, patch, delete]
- apiGroups: [apps]
  resources: [statefulsets, deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps] # which settings their pods name
  resources: [replicasets]
  verbs: [list, watch]
- apiGroups: [apps] # specs to go back to
  resources: [controllerrevisions]
  verbs: [list, create, delete]
- apiGroups: [batch]
  resources: [cronjobs, jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end }}
